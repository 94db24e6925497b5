use highwater::{Cookies, Router};

type C = Cookies;

fn hungry(_: C, _: C, _: C, _: C, _: C, _: C, _: C, _: C, _: C) {}

fn main() {
    let _ = Router::new().get("/", hungry);
}
