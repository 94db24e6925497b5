use std::rc::Rc;

use highwater::{Error, FromRequest, Request, Router, blocking};

struct Local(Rc<str>);

impl FromRequest for Local {
    fn from_request(_: &Request<'_>) -> Result<Self, Error> {
        Ok(Local("".into()))
    }
}

fn report(Local(text): Local) -> String {
    text.to_string()
}

fn main() {
    let _ = Router::new().get("/", blocking(report));
}
