// Calls the Todo service with the types that were made of its document. The token is the second argument.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

const client = createClient<paths>({
  baseUrl: process.argv[2] ?? "",
  headers: { Authorization: process.argv[3] ?? "" },
});

function check(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

const body: components["schemas"]["NewTodo"] = { title: "Tea" };
const query = { wait: "applied" } as const;
const created = await client.POST("/todos", { body, params: { query } });
check(created.data !== undefined, `a todo is created: ${created.response.status}`);
const id: string = created.data.id;

const shown = await client.GET("/todos/{id}", { params: { path: { id } } });
check(shown.data?.title === "Tea" && !shown.data.completed, "it is shown");

const params = { path: { id }, query };
const changed = await client.PUT("/todos/{id}", { params, body: { completed: true } });
check(changed.data?.id === id, "it is changed");

const listed = await client.GET("/todos", { params: { query: { limit: 10 } } });
check(listed.data?.find((todo) => todo.id === id)?.completed === true, "it is in the list");

await client.DELETE("/todos/{id}", { params });
const gone = await client.GET("/todos/{id}", { params: { path: { id } } });
check(gone.data === undefined && typeof gone.error?.error === "string", "errors have types");

// @ts-expect-error: a todo without a title is none, and the compiler knows.
const refused = await client.POST("/todos", { body: {} });
check(refused.response.status === 400 || refused.response.status === 422, "so does the server");
