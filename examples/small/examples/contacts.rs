//! A documented, validated API of five routes: docs/first-api.md explains it.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use garde::Validate;
use highwater::openapi::OpenApi;
use highwater::resource::{Expected, Listing, Page, Resource, resource};
use highwater::{Error, Json, Router, Server, ServerError, Valid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What clients send.
#[derive(Deserialize, JsonSchema, Validate)]
struct NewContact {
    #[garde(length(chars, min = 1, max = 50))]
    name: String,
    /// Where to write to.
    #[garde(email)]
    email: String,
}

/// What clients get.
#[derive(Clone, Serialize, JsonSchema)]
struct Contact {
    id: u64,
    name: String,
    email: String,
}

impl NewContact {
    fn with_id(self, id: u64) -> Contact {
        Contact { id, name: self.name, email: self.email }
    }
}

/// All contacts, in memory: a restart forgets them.
#[derive(Default)]
struct Contacts(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_id: BTreeMap<u64, Contact>,
    last_id: u64, // No id is given twice, even after a deletion.
}

impl Contacts {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resource for Contacts {
    type Context = (); // What the methods need besides: `State<Pool>`, or several as a tuple.
    type Id = u64;
    type Input = Valid<Json<NewContact>>;
    type Item = Contact;

    fn list(&self, (): (), page: Page) -> Result<Listing<Contact>, Error> {
        let by_id = &self.lock().by_id;
        let items = by_id.values().skip(page.offset_usize()).take(page.limit());
        Ok(Listing::new(items.cloned().collect()).total(by_id.len()))
    }

    fn create(&self, (): (), Valid(Json(new)): Self::Input) -> Result<(u64, Contact), Error> {
        let mut kept = self.lock();
        kept.last_id += 1;
        let id = kept.last_id;
        let contact = new.with_id(id);
        kept.by_id.insert(id, contact.clone());
        Ok((id, contact))
    }

    fn show(&self, (): (), id: u64) -> Result<Option<Contact>, Error> {
        Ok(self.lock().by_id.get(&id).cloned())
    }

    fn replace(
        &self,
        (): (),
        id: u64,
        Valid(Json(new)): Self::Input,
        expected: &Expected<Contact>,
    ) -> Result<Contact, Error> {
        let by_id = &mut self.lock().by_id;
        expected.check(by_id.get(&id))?; // 404, and 412 if somebody else was faster.
        let contact = new.with_id(id);
        by_id.insert(id, contact.clone());
        Ok(contact)
    }

    fn delete(&self, (): (), id: u64, expected: &Expected<Contact>) -> Result<(), Error> {
        let by_id = &mut self.lock().by_id;
        expected.check(by_id.get(&id))?;
        by_id.remove(&id);
        Ok(())
    }
}

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    Router::new()
        .openapi(OpenApi::new("Contacts", env!("CARGO_PKG_VERSION")))
        .resource("/contacts", resource(Contacts::default()).described("contact", "contacts"))
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}

#[cfg(test)]
mod tests {
    use highwater::testing::Client;
    use serde_json::{Value, json};

    use super::router;

    #[test]
    fn a_contact_comes_and_goes() {
        let client = Client::new(router());
        let ann = json!({ "name": "Ann", "email": "ann@example.com" });
        let created = client.post_json("/contacts", &ann);
        assert_eq!(created.status, 201);
        assert_eq!(created.header("location"), Some("/contacts/1"));
        assert_eq!(client.get("/contacts/1").json::<Value>()["email"], "ann@example.com");
        assert_eq!(client.get("/contacts").json::<Value>()["total"], 1);

        let ann = json!({ "name": "Ann", "email": "ann@example.org" });
        assert_eq!(client.put_json("/contacts/1", &ann).status, 200);
        assert_eq!(client.delete("/contacts/1").status, 204);
        assert_eq!(client.get("/contacts/1").status, 404);
        let next = client.post_json("/contacts", &ann);
        assert_eq!(next.header("location"), Some("/contacts/2"), "no id is used again");
    }

    #[test]
    fn wrong_fields_are_named_all_at_once() {
        let wrong = json!({ "name": "", "email": "ann" });
        let refused = Client::new(router()).post_json("/contacts", &wrong);
        assert_eq!(refused.status, 422);
        let fields = &refused.json::<Value>()["error"]["details"];
        assert_eq!((&fields[0]["field"], &fields[1]["field"]), (&json!("email"), &json!("name")));
    }

    #[test]
    fn the_document_knows_the_rules() {
        let document: Value = Client::new(router()).get("/openapi.json").json();
        let input = &document["components"]["schemas"]["NewContact"]["properties"];
        assert_eq!(input["name"]["maxLength"], 50);
        assert_eq!(input["email"]["format"], "email");
    }
}
