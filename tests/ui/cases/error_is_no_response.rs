use highwater::Router;

fn read() -> Result<String, std::io::Error> {
    std::fs::read_to_string("motd")
}

fn main() {
    let _ = Router::new().get("/", read);
}
