use std::cell::Cell;

use highwater::Router;

fn main() {
    let count = Cell::new(0);
    let _ = Router::new().get("/", move || {
        count.set(count.get() + 1);
        count.get().to_string()
    });
}
