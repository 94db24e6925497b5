//! `/json/{count}`: the first items of a data set that is read at start, each with a total that depends on the request, and
//! compressed for clients that accept it.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use highwater::layers::compression;
use highwater::{IntoResponse as _, Json, Path, Query, Response, Router};
use serde::{Deserialize, Serialize, Serializer};

/// Where HttpArena mounts its data set.
pub const DATASET: &str = "/data/dataset.json";

/// Largest data set, in bytes: HttpArena's has about 8 KB.
const BYTES_MAX: u64 = 16 << 20;

/// Items, in the order of their file.
#[derive(Clone, Debug)]
pub struct Dataset(Arc<[Item]>);

#[derive(Debug, Deserialize)]
struct Item {
    id: i64,
    name: String,
    category: String,
    price: i64,
    quantity: i64,
    active: bool,
    tags: Vec<String>,
    rating: Rating,
}

#[derive(Debug, Deserialize, Serialize)]
struct Rating {
    score: i64,
    count: i64,
}

#[derive(Deserialize)]
struct Multiplier {
    #[serde(default = "one")]
    m: i64,
}

fn one() -> i64 {
    1
}

#[derive(Serialize)]
struct Answer<'d> {
    items: Totalled<'d>,
    count: usize,
}

/// Items with their totals.
struct Totalled<'d> {
    items: &'d [Item],
    multiplier: i64,
}

/// An item with its total.
#[derive(Serialize)]
struct Row<'d> {
    id: i64,
    name: &'d str,
    category: &'d str,
    price: i64,
    quantity: i64,
    active: bool,
    tags: &'d [String],
    rating: &'d Rating,
    total: i64,
}

/// Reads the data set at `path`, as a setting.
///
/// # Errors
/// Why it cannot be used, and what to write instead.
pub fn read(path: &str) -> Result<Dataset, String> {
    let remedy = "use a JSON array of items, such as HttpArena's dataset.json";
    let mut text = String::new();
    let read = File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| format!("{error}; {remedy}"))?;
    if read as u64 > BYTES_MAX {
        return Err(format!("it is larger than {BYTES_MAX} bytes; {remedy}"));
    }
    let items: Vec<Item> =
        serde_json::from_str(&text).map_err(|error| format!("{error}; {remedy}"))?;
    Ok(Dataset(items.into()))
}

/// Adds `/json/{count}`.
pub fn routes(router: Router, dataset: Dataset) -> Router {
    let answer = move |Path(count): Path<usize>, Query(Multiplier { m }): Query<Multiplier>| {
        dataset.answer(count, m)
    };
    router.merge(Router::new().get("/json/{count}", answer).layer(compression()))
}

impl Dataset {
    /// The first `count` items, or all if there are fewer.
    fn answer(&self, count: usize, multiplier: i64) -> Response {
        let items = &self.0[..count.min(self.0.len())];
        let answer = Answer { items: Totalled { items, multiplier }, count: items.len() };
        Json(answer).into_response()
    }
}

impl Serialize for Totalled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.items.iter().map(|item| item.row(self.multiplier)))
    }
}

impl Item {
    fn row(&self, multiplier: i64) -> Row<'_> {
        Row {
            id: self.id,
            name: &self.name,
            category: &self.category,
            price: self.price,
            quantity: self.quantity,
            active: self.active,
            tags: &self.tags,
            rating: &self.rating,
            total: self.price.wrapping_mul(self.quantity).wrapping_mul(multiplier),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater::testing::Client;
    use serde_json::{Value, json};

    use super::*;

    fn item(id: i64) -> Value {
        json!({
            "id": id, "name": format!("Item {id}"), "category": "tools", "price": 10 + id, "quantity": 3,
            "active": id % 2 == 0, "tags": ["new", "\"quoted\""], "rating": {"score": 42, "count": 7},
        })
    }

    fn saved(content: &str) -> (tempfile::NamedTempFile, String) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), content).expect("writable");
        let path = file.path().to_str().expect("a plain name").to_owned();
        (file, path)
    }

    fn client(count: i64) -> Client {
        let items: Vec<Value> = (0..count).map(item).collect();
        let (_file, path) = saved(&json!(items).to_string());
        Client::new(routes(Router::new(), read(&path).expect("it is right")))
    }

    /// Purpose: an answer has the first items with all their fields, and totals from the request; it never has more items than
    /// there are.
    #[test]
    fn items_and_totals() {
        let client = client(50);
        for (target, count, m) in [
            ("/json/1", 1, 1),
            ("/json/12?m=3", 12, 3),
            ("/json/50?m=-2", 50, -2),
            ("/json/0?m=3", 0, 3),
            ("/json/51?m=3", 50, 3),
        ] {
            let wanted: Vec<Value> = (0..count)
                .map(|id| {
                    let mut wanted = item(id);
                    wanted["total"] = json!((10 + id) * 3 * m);
                    wanted
                })
                .collect();
            let response = client.get(target);
            let got: Value = serde_json::from_str(response.text()).expect("it is JSON");
            assert_eq!(got, json!({"items": wanted, "count": count}), "{target}");
            assert_eq!(response.header("content-type"), Some("application/json"));
            assert_eq!(response.header("content-encoding"), None);
        }
        for target in ["/json/many", "/json/1?m=x", "/json/-1"] {
            assert!(matches!(client.get(target).status.as_u16(), 400 | 404), "{target}");
        }
    }

    /// Purpose: who accepts a coding gets it, and nobody else.
    #[test]
    fn compressed_if_accepted() {
        let client = client(50);
        let plain = client.get("/json/40?m=3").body;
        for (accepted, coding) in
            [("gzip, br", Some("br")), ("gzip", Some("gzip")), ("identity", None)]
        {
            client.set_header("accept-encoding", accepted);
            let response = client.get("/json/40?m=3");
            assert_eq!(response.header("content-encoding"), coding, "{accepted}");
            assert_eq!(response.body.len() < plain.len(), coding.is_some(), "{accepted}");
        }
    }

    /// Purpose: a data set that cannot be used says why, and what to write instead.
    #[test]
    fn mistakes() {
        let refusal = read("/no/such.json").expect_err("it is not there");
        assert!(refusal.contains("No such file"), "{refusal}");
        for content in ["", "{}", "[{\"id\": 1}]", "[1]"] {
            let (_file, path) = saved(content);
            let refusal = read(&path).expect_err(content);
            assert!(refusal.contains("line 1") && refusal.contains("JSON array"), "{refusal}");
        }
        let (file, path) = saved("[]");
        file.as_file().set_len(BYTES_MAX + 1).expect("it may be sparse");
        let refusal = read(&path).expect_err("it is too large");
        assert!(refusal.contains("larger than 16777216 bytes"), "{refusal}");
    }
}
