// Fiber 3. Environment: PORT (8080), WORKERS (1). JSON by goccy/go-json, as its guide "Make Fiber Faster" says.
package main

import (
	"log"
	"strings"

	"github.com/goccy/go-json"
	"github.com/gofiber/fiber/v3"

	"highwater-peers/routes"
)

func plaintext(c fiber.Ctx) error {
	return c.SendString("Hello, World!")
}

func message(c fiber.Ctx) error {
	return c.JSON(routes.Message{Message: "Hello, World!"})
}

func user(c fiber.Ctx) error {
	return c.SendString(c.Params("id"))
}

// The body has been read when a handler is called. SendStatus would send the status in words as the body.
func event(c fiber.Ctx) error {
	c.Status(fiber.StatusAccepted)
	return nil
}

func other(c fiber.Ctx) error {
	c.Status(fiber.StatusNoContent)
	return nil
}

func main() {
	address := routes.Start()
	app := fiber.New(fiber.Config{JSONEncoder: json.Marshal, JSONDecoder: json.Unmarshal})
	app.Get("/plaintext", plaintext)
	app.Get("/json", message)
	app.Get("/users/:id", user)
	app.Post("/e", event)
	parameters := strings.NewReplacer("{", ":", "}", "")
	for _, path := range routes.Extra {
		app.Get(parameters.Replace(path), other)
	}
	log.Fatal(app.Listen(address, fiber.ListenConfig{DisableStartupMessage: true}))
}
