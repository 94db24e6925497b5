use highwater::openapi::api;
use highwater::{Error, FromRequest, Request, Router};

struct Page(u32);

impl FromRequest for Page {
    fn from_request(_: &Request<'_>) -> Result<Self, Error> {
        Ok(Page(1))
    }
}

fn list(Page(page): Page) -> String {
    page.to_string()
}

fn main() {
    let _ = Router::new().get("/todos", api(list));
}
