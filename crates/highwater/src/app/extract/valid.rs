//! Values that are checked before a handler gets them.

use garde::Validate;
use serde_json::{Value, json};

use super::{BodyUse, Form, FromRequest, Json, Path, Query, Requirements};
use crate::app::error::Error;
use crate::app::request::Request;

/// At most this many invalid fields are named, so that a long list of wrong values does not cause a long answer.
pub const FIELD_ERRORS_MAX: usize = 100;

/// A value that satisfies its rules, which `#[derive(garde::Validate)]` reads from attributes. `T` is [`Json`],
/// [`Query`], [`Form`] or [`Path`] of such a type.
///
/// If rules are broken, the request is answered 422 `validation_failed`, with all invalid fields at once in
/// [`details`](Error::details): `[{"field":"email","message":"…"}]`, at most 100. Input that is not a value of the type is
/// refused by `T` itself, as without `Valid`.
///
/// `length(chars, …)` counts characters, as the `maxLength` of a document does; without `chars`, it counts bytes of UTF-8.
///
/// ```
/// use garde::Validate;
/// use highwater::testing::Client;
/// use highwater::{Json, Router, StatusCode, Valid};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Validate)]
/// struct NewUser {
///     #[garde(length(chars, min = 1, max = 50))]
///     name: String,
///     #[garde(range(min = 18))]
///     age: u8,
/// }
///
/// fn create(Valid(Json(user)): Valid<Json<NewUser>>) -> (StatusCode, String) {
///     (StatusCode::CREATED, user.name)
/// }
///
/// let client = Client::new(Router::new().post("/users", create));
/// let wrong = client.post_json("/users", &serde_json::json!({ "name": "", "age": 7 }));
/// assert_eq!(wrong.status, 422);
/// let answer: serde_json::Value = wrong.json();
/// assert_eq!(answer["error"]["code"], "validation_failed");
/// assert_eq!(answer["error"]["details"][0]["field"], "age");
/// assert_eq!(answer["error"]["details"][1]["field"], "name");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Valid<T>(pub T);

/// An extractor that holds one value, which [`Valid`] checks.
#[diagnostic::on_unimplemented(
    message = "`Valid` cannot check `{Self}`",
    label = "this holds no value that can be checked",
    note = "write `Valid<Json<T>>`, `Valid<Query<T>>`, `Valid<Form<T>>` or `Valid<Path<T>>`, where `T` derives \
            `garde::Validate`; or implement `Holds` for an extractor of your own"
)]
pub trait Holds {
    /// The value's type.
    type Value;

    /// The value.
    fn value(&self) -> &Self::Value;
}

macro_rules! holds {
    ($($extractor:ident)*) => {$(
        impl<T> Holds for $extractor<T> {
            type Value = T;

            fn value(&self) -> &T {
                &self.0
            }
        }
    )*};
}

holds! { Json Query Form Path }

impl<E> FromRequest for Valid<E>
where
    E: FromRequest + Holds,
    E::Value: Validate,
    <E::Value as Validate>::Context: Default,
{
    const BODY: BodyUse = E::BODY;
    const PEER: bool = E::PEER;
    const CONNECT: bool = E::CONNECT;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let extracted = E::from_request(request)?;
        match extracted.value().validate() {
            Ok(()) => Ok(Valid(extracted)),
            Err(report) => Err(refuse(&report)),
        }
    }

    fn is_present(request: &Request<'_>) -> bool {
        E::is_present(request)
    }

    fn requires(requirements: &mut Requirements) {
        E::requires(requirements);
    }
}

#[cold]
fn refuse(report: &garde::Report) -> Error {
    let errors = report.iter().take(FIELD_ERRORS_MAX);
    let mut errors: Vec<_> =
        errors.map(|(path, error)| (path.to_string(), error.message())).collect();
    errors.sort_by(|(one, _), (other, _)| one.cmp(other)); // The rule's order is that of a map.
    let fields = errors.iter().map(|(field, _)| field.as_str()).collect::<Vec<_>>().join(", ");
    let details =
        errors.iter().map(|(field, message)| json!({ "field": field, "message": message }));
    Error::unprocessable(format!("these fields are not valid: {fields}"))
        .with_code("validation_failed")
        .with_details(&details.collect::<Value>())
}
