use highwater::{Path, Router};

struct Id(u64);

fn show(Path(id): Path<Id>) -> String {
    id.0.to_string()
}

fn main() {
    let _ = Router::new().get("/{id}", show);
}
