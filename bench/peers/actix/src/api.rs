//! The routes of the plan `web`, behind actix-web's middleware and that of actix-cors and actix-governor, with the files of
//! actix-files. WEB names their folder.
//!
//! What actix-web has no middleware for is written with its `from_fn`: request ids, timeouts, and gzip at a level that can
//! be chosen. Its `Compress` is fixed at level 1, which would be less work than the others do, and encodes on another thread.
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use actix_cors::Cors;
use actix_files::Files;
use actix_governor::governor::middleware::StateInformationMiddleware;
use actix_governor::{Governor, GovernorConfig, GovernorConfigBuilder, PeerIpKeyExtractor};
use actix_web::body::{BoxBody, MessageBody, to_bytes};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::{ErrorInternalServerError, ErrorServiceUnavailable};
use actix_web::http::header::{self, ContentType, HeaderName, HeaderValue};
use actix_web::middleware::{Compress, DefaultHeaders, Next, from_fn};
use actix_web::{Error, HttpResponse, web};
use flate2::{Compression, write::GzEncoder};

#[path = "../../common/web.rs"]
mod common;

use common::{Order, Receipt, Record};

type Quota = GovernorConfig<PeerIpKeyExtractor, StateInformationMiddleware>;

/// What all workers share.
#[derive(Clone)]
pub struct Web {
    folder: PathBuf,
    quota: Quota,
    records: web::Data<Vec<Record>>,
}

impl Web {
    pub fn from_env() -> Option<Web> {
        let quota = GovernorConfigBuilder::default()
            .nanoseconds_per_request(1)
            .burst_size(common::REQUESTS)
            .use_headers()
            .finish()
            .expect("it is more than nothing");
        Some(Web {
            folder: std::env::var_os("WEB")?.into(),
            quota,
            records: web::Data::new(common::records()),
        })
    }

    pub fn configure(&self, config: &mut web::ServiceConfig) {
        let five = web::resource("/web/layers")
            .wrap(from_fn(timeout))
            .wrap(Compress::default())
            .wrap(DefaultHeaders::new().add((header::X_CONTENT_TYPE_OPTIONS, "nosniff")))
            .wrap(Cors::default().allow_any_origin().send_wildcard())
            .wrap(from_fn(request_id))
            .get(hello);
        let limited = web::resource("/web/limited").wrap(Governor::new(&self.quota)).get(hello);
        let upload = web::resource("/web/upload")
            .app_data(web::PayloadConfig::new(common::UPLOAD_MAX))
            .post(upload);
        config
            .app_data(self.records.clone())
            .service(web::resource("/web/list").wrap(from_fn(gzip)).get(list))
            .service(Files::new("/web/files", &self.folder))
            .service(upload)
            .service(limited)
            .service(five)
            .route("/web/orders", web::post().to(order));
    }
}

async fn list(records: web::Data<Vec<Record>>) -> HttpResponse {
    HttpResponse::Ok().json(records.as_ref())
}

async fn upload(body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body(body.len().to_string())
}

async fn hello() -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::plaintext()).body("Hello, World!")
}

async fn order(order: web::Json<Order>) -> HttpResponse {
    HttpResponse::Ok().json(Receipt::from(order.into_inner()))
}

async fn gzip(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let accepted = request.headers().get(header::ACCEPT_ENCODING);
    let accepts_gzip = accepted.is_some_and(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|coding| coding.trim() == "gzip"))
    });
    let (request, response) = next.call(request).await?.into_parts();
    let (mut response, body) = response.into_parts();
    let content = to_bytes(body).await.map_err(|error| ErrorInternalServerError(error.into()))?;
    if !accepts_gzip || content.len() < common::COMPRESSED_BYTES_MIN {
        return Ok(ServiceResponse::new(request, response.set_body(BoxBody::new(content))));
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(common::GZIP_LEVEL));
    encoder.write_all(&content)?;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let response = response.set_body(BoxBody::new(encoder.finish()?));
    Ok(ServiceResponse::new(request, response))
}

async fn request_id(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let mut response = next.call(request).await?;
    let id = HeaderValue::try_from(common::id()).expect("digits");
    response.headers_mut().insert(HeaderName::from_static("x-request-id"), id);
    Ok(response)
}

async fn timeout(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    actix_web::rt::time::timeout(Duration::from_secs(5), next.call(request))
        .await
        .map_err(ErrorServiceUnavailable)?
}
