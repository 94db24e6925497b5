use highwater::resource::{Expected, Listing, Page, Resource, resource};
use highwater::{Error, Json, Router};
use serde::Serialize;

#[derive(Serialize)]
struct Todo {
    title: String,
}

struct Todos;

impl Resource for Todos {
    type Context = ();
    type Id = u64;
    type Input = Json<String>;
    type Item = Todo;

    fn list(&self, (): (), _: Page) -> Result<Listing<Todo>, Error> {
        Ok(Listing::new(Vec::new()))
    }

    fn create(&self, (): (), Json(title): Json<String>) -> Result<(u64, Todo), Error> {
        Ok((1, Todo { title }))
    }

    fn show(&self, (): (), _: u64) -> Result<Option<Todo>, Error> {
        Ok(None)
    }

    fn replace(&self, (): (), _: u64, Json(title): Json<String>, _: &Expected<Todo>) -> Result<Todo, Error> {
        Ok(Todo { title })
    }

    fn delete(&self, (): (), _: u64, expected: &Expected<Todo>) -> Result<(), Error> {
        expected.check(None)
    }
}

fn main() {
    let _ = Router::new().resource("/todos", resource(Todos).described("todo", "todos"));
}
