use highwater::{Error, Router};

fn read() -> Result<String, Error> {
    Ok(std::fs::read_to_string("motd")?)
}

fn main() {
    let _ = Router::new().get("/", read);
}
