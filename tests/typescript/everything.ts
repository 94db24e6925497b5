// Calls the routes of examples/everything that its document describes, with the types that were made of it.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });

function check(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

const book: components["schemas"]["NewBook"] = { title: "The Sea", author: "Ann" };
const created = await client.POST("/books", { body: book });
check(created.response.status === 201 && created.data !== undefined, "a book is created");
const id: number = created.data.id;

const shown = await client.GET("/books/{id}", { params: { path: { id } } });
check(shown.data?.title === book.title && shown.data.author === book.author, "it is shown");

const page = await client.GET("/books", { params: { query: { page: 1, per_page: 10 } } });
check(page.data?.items.some((one) => one.id === id) === true, "it is in a page");

const missing = await client.GET("/books/{id}", { params: { path: { id: id + 1 } } });
check(missing.data === undefined && missing.error?.error.code === "not_found", "errors have types");

const pay = () =>
  client.POST("/payments", {
    params: { header: { "Idempotency-Key": "7f3c" } },
    body: { to: "Ann", cents: 1050 },
  });
const [paid, again] = [await pay(), await pay()];
check(paid.data !== undefined && again.data?.id === paid.data.id, "a payment is made once");

// @ts-expect-error: a book without an author is no book, and the compiler knows.
const refused = await client.POST("/books", { body: { title: "Half" } });
check(refused.response.status === 422, "nor for the server");
