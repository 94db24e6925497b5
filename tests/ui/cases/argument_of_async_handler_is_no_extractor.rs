use highwater::{Path, Router};

async fn square(Path(n): Path<u64>, factor: u64) -> String {
    (n * factor).to_string()
}

fn main() {
    let _ = Router::new().get("/square/{n}", square);
}
