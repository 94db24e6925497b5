// Calls the search service with the types that were made of its document.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });

function check(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

const query = { starts_at: "2021-02-10", ends_at: "2021-06-30" };
const found = await client.GET("/search", { params: { query } });
const titles: string[] = found.data?.data.events.map((event) => event.title) ?? [];
check(titles.includes("Pantomima Full"), "an event of the feed is found");
const price: number | null | undefined = found.data?.data.events[0]?.min_price;
check(price === null, "a price may be absent");

const refused = await client.GET("/search", { params: { query: { starts_at: "yesterday" } } });
check(refused.error?.error.code === "invalid_parameter", "errors have types");

// @ts-expect-error: there is no such parameter, and the compiler knows.
const unknown = await client.GET("/search", { params: { query: { until: "2021-06-30" } } });
check(unknown.response.status === 200 || unknown.response.status === 400, "the server answers");
