// Package routes has what the Go peers share: the routes that stand beside the measured ones, so that every router has
// a realistic table, and the settings. Nobody requests these routes. The Rust peers' list is ../common/routes.rs.
package routes

import (
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
)

// Extra is registered by every peer and answered with 204.
var Extra = []string{
	"/api/v1/health",
	"/api/v1/status",
	"/api/v1/metrics",
	"/api/v1/login",
	"/api/v1/logout",
	"/api/v1/orgs",
	"/api/v1/orgs/{org}",
	"/api/v1/orgs/{org}/repos",
	"/api/v1/orgs/{org}/members",
	"/api/v1/repos/{owner}/{repo}",
	"/api/v1/repos/{owner}/{repo}/issues",
	"/api/v1/repos/{owner}/{repo}/issues/{number}",
	"/api/v1/repos/{owner}/{repo}/pulls",
	"/api/v1/repos/{owner}/{repo}/pulls/{number}",
	"/api/v1/repos/{owner}/{repo}/commits",
	"/api/v1/repos/{owner}/{repo}/commits/{sha}",
	"/api/v1/repos/{owner}/{repo}/branches",
	"/api/v1/gists",
	"/api/v1/gists/{id}",
	"/api/v1/search",
	"/api/v1/search/code",
	"/api/v1/search/users",
	"/api/v1/notifications",
	"/api/v1/notifications/{id}",
	"/api/v1/events",
	"/api/v1/feeds",
	"/api/v1/teams",
	"/api/v1/teams/{id}",
	"/api/v1/teams/{id}/members",
	"/users",
	"/users/{id}/keys",
	"/users/{id}/followers",
}

// Message is what /json answers, serialized for each request.
type Message struct {
	Message string `json:"message"`
}

// Start applies WORKERS (1) as GOMAXPROCS, and lets the heap grow fivefold between collections: a server of this size
// is collected all the time otherwise. It returns the address to listen on, from PORT (8080).
func Start() string {
	runtime.GOMAXPROCS(number("WORKERS", 1))
	debug.SetGCPercent(400)
	return "127.0.0.1:" + strconv.Itoa(number("PORT", 8080))
}

func number(name string, otherwise int) int {
	text, is := os.LookupEnv(name)
	if !is {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatalf("%s=%q is no number", name, text)
	}
	return value
}
