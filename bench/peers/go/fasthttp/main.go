// fasthttp with the router of its organisation. Environment: PORT (8080), WORKERS (1).
package main

import (
	"encoding/json"
	"log"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"highwater-peers/routes"
)

func plaintext(c *fasthttp.RequestCtx) {
	c.SetContentType("text/plain")
	c.SetBodyString("Hello, World!")
}

func message(c *fasthttp.RequestCtx) {
	c.SetContentType("application/json")
	body, _ := json.Marshal(routes.Message{Message: "Hello, World!"})
	c.SetBody(body)
}

func user(c *fasthttp.RequestCtx) {
	c.SetContentType("text/plain")
	c.SetBodyString(c.UserValue("id").(string))
}

// The body has been read when a handler is called.
func event(c *fasthttp.RequestCtx) {
	c.SetStatusCode(fasthttp.StatusAccepted)
}

func other(c *fasthttp.RequestCtx) {
	c.SetStatusCode(fasthttp.StatusNoContent)
}

func main() {
	address := routes.Start()
	r := router.New()
	r.GET("/plaintext", plaintext)
	r.GET("/json", message)
	r.GET("/users/{id}", user)
	r.POST("/e", event)
	for _, path := range routes.Extra {
		r.GET(path, other)
	}
	server := &fasthttp.Server{Handler: r.Handler, Name: "fasthttp"}
	log.Fatal(server.ListenAndServe(address))
}
