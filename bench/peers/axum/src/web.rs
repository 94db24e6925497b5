//! The routes of the plan `web`, behind layers of tower-http and tower_governor. WEB names the folder of files.
use std::sync::Arc;
use std::time::Duration;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderValue, Request, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tower::ServiceBuilder;
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};
use tower_http::compression::{CompressionLayer, CompressionLevel, predicate::SizeAbove};
use tower_http::cors::{Any, CorsLayer};
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::services::ServeDir;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;

#[path = "../../common/web.rs"]
mod common;

use common::{Order, Receipt, Record};

type Records = Arc<Vec<Record>>;

#[derive(Clone)]
struct Ids;

impl MakeRequestId for Ids {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        let id = HeaderValue::try_from(common::id()).expect("digits");
        Some(RequestId::new(id))
    }
}

async fn list(State(records): State<Records>) -> Response {
    Json(records.as_slice()).into_response()
}

async fn upload(body: Bytes) -> String {
    body.len().to_string()
}

async fn hello() -> &'static str {
    "Hello, World!"
}

async fn order(Json(order): Json<Order>) -> Json<Receipt> {
    Json(order.into())
}

fn compression() -> CompressionLayer<SizeAbove> {
    CompressionLayer::new()
        .quality(CompressionLevel::Precise(common::GZIP_LEVEL as i32))
        .compress_when(SizeAbove::new(common::COMPRESSED_BYTES_MIN as u64))
}

/// Adds the routes, if there is a folder.
pub fn routes(app: Router) -> Router {
    let Some(folder) = std::env::var_os("WEB") else { return app };
    // tower_governor's interval is at least a nanosecond, as Highwater's.
    let quota = GovernorConfigBuilder::default()
        .per_nanosecond(1)
        .burst_size(common::REQUESTS)
        .use_headers()
        .finish()
        .expect("it is more than nothing");
    let five = ServiceBuilder::new()
        .layer(SetRequestIdLayer::x_request_id(Ids))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(CorsLayer::new().allow_origin(Any))
        .layer(SetResponseHeaderLayer::if_not_present(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ))
        .layer(compression())
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            Duration::from_secs(5),
        ));
    let list = get(list).layer(compression()).with_state(Arc::new(common::records()));
    let upload = post(upload).layer(DefaultBodyLimit::max(common::UPLOAD_MAX));
    app.route("/web/list", list)
        .nest_service("/web/files", ServeDir::new(folder))
        .route("/web/upload", upload)
        .route("/web/limited", get(hello).layer(GovernorLayer::new(quota)))
        .route("/web/layers", get(hello).layer(five))
        .route("/web/orders", post(order))
}
