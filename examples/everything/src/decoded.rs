//! A recipe: requests whose content is compressed (`Content-Encoding`, RFC 9110 §8.4).
//!
//! A few bytes can become many, so the limit is on what comes out. Decoding takes a core for a while: give handlers that take
//! [`Decoded`] to `blocking`; they decode there.

use std::io::{self, Read};

use highwater::{BodyUse, Bytes, Error, FromRequest, HeaderValue, Request, StatusCode, header};

/// The most bytes of decoded content; beyond it 413.
pub(crate) const DECODED_BYTES_MAX: u64 = 1 << 20;

/// The largest window of zstd content, as a power of two: what a decoder takes for it.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The content of a request, decoded.
pub(crate) struct Decoded(pub(crate) Bytes);

impl FromRequest for Decoded {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let content = Bytes::from_request(request)?;
        let coding =
            request.header("content-encoding").unwrap_or("identity").trim().to_ascii_lowercase();
        decode(&coding, content).map(Decoded)
    }
}

fn decode(coding: &str, content: Bytes) -> Result<Bytes, Error> {
    let bytes = &content[..];
    let decoded = match coding {
        "identity" => return Ok(content),
        "gzip" | "x-gzip" => read(flate2::read::MultiGzDecoder::new(bytes)),
        // RFC 9110 §8.4.1.2: it is the zlib format; some clients send the bare one.
        "deflate" if bytes.first().is_some_and(|first| first & 0x0f == 8) => {
            read(flate2::read::ZlibDecoder::new(bytes))
        }
        "deflate" => read(flate2::read::DeflateDecoder::new(bytes)),
        "br" => read(brotli::Decompressor::new(bytes, 4096)),
        "zstd" => zstd::stream::read::Decoder::new(bytes).and_then(|mut decoder| {
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            read(decoder)
        }),
        _ => {
            let message = "the content's coding is not known here";
            let known = HeaderValue::from_static("gzip, deflate, br, zstd");
            return Err(Error::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                message,
            )
            .with_header(header::ACCEPT_ENCODING, known));
        }
    };
    let decoded = decoded.map_err(|error| {
        Error::bad_request(format!("the content is not {coding}: {error}"))
            .with_code("invalid_body")
    })?;
    if decoded.len() as u64 > DECODED_BYTES_MAX {
        let message = format!("the decoded content has more than {DECODED_BYTES_MAX} bytes");
        return Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message));
    }
    Ok(decoded.into())
}

/// At most one byte more than there may be.
fn read(decoder: impl Read) -> io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    decoder.take(DECODED_BYTES_MAX + 1).read_to_end(&mut decoded)?;
    Ok(decoded)
}
