//! Pages of HTML from templates that the compiler checks: `templates/todos.html`, by the crate `askama`.
//!
//! A field that the template uses and the struct does not have is an error of the compiler. Text is escaped by the file's
//! extension. Rendering does not wait, so it may happen on the worker.

use askama::Template;
use highwater::{Error, Html, Path, Router};

#[derive(Template)]
#[template(path = "todos.html")]
struct TodosPage {
    owner: String,
    todos: Vec<Todo>,
}

struct Todo {
    title: String,
    is_done: bool,
}

/// `/todos/{owner}`: a page of somebody's todos.
pub fn routes() -> Router {
    Router::new().get("/todos/{owner}", todos)
}

fn todos(Path(owner): Path<String>) -> Result<Html<String>, Error> {
    let todos = match owner.as_str() {
        "ann" => vec![
            Todo { title: "buy <milk> & tea".into(), is_done: false },
            Todo { title: "read".into(), is_done: true },
        ],
        _ => Vec::new(),
    };
    let page = TodosPage { owner, todos }.render();
    page.map(Html).map_err(Error::internal)
}
