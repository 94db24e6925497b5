// Go's net/http, with its own router. Environment: PORT (8080), WORKERS (1).
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"

	"highwater-peers/routes"
)

var hello = []byte("Hello, World!")

func plaintext(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Write(hello)
}

func message(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, _ := json.Marshal(routes.Message{Message: "Hello, World!"})
	w.Write(body)
}

func user(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, r.PathValue("id"))
}

func event(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusAccepted)
}

func other(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	address := routes.Start()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /plaintext", plaintext)
	mux.HandleFunc("GET /json", message)
	mux.HandleFunc("GET /users/{id}", user)
	mux.HandleFunc("POST /e", event)
	for _, path := range routes.Extra {
		mux.HandleFunc("GET "+path, other)
	}
	log.Fatal(http.ListenAndServe(address, mux))
}
