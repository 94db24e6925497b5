use highwater::Router;

struct User {
    name: String,
}

fn greet(user: User) -> String {
    user.name
}

fn main() {
    let _ = Router::new().get("/", greet);
}
