//! A recipe: requests whose content is compressed (`Content-Encoding`, RFC 9110 §8.4).
//!
//! A few bytes can become many, so the limit is on what comes out. Decoding takes a core for a while. Arguments are extracted on
//! the worker, so [`Encoded`] only holds the content; a handler on the pool (`blocking`) decodes it there.

use std::io::{self, Read};

use highwater::{BodyUse, Bytes, Error, FromRequest, HeaderValue, Request, StatusCode, header};

/// The most bytes of decoded content; beyond it 413.
pub(crate) const DECODED_BYTES_MAX: u64 = 1 << 20;

/// The largest window of zstd content, as a power of two: what a decoder takes for it.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// The content of a request as it was sent, and its coding.
pub(crate) struct Encoded {
    content: Bytes,
    coding: String,
}

impl FromRequest for Encoded {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let content = Bytes::from_request(request)?;
        let coding =
            request.header("content-encoding").unwrap_or("identity").trim().to_ascii_lowercase();
        Ok(Encoded { content, coding })
    }
}

impl Encoded {
    /// The content, decoded.
    ///
    /// # Errors
    /// 413 if it is too long, 415 if its coding is not known here, 400 if it is not in that coding.
    pub(crate) fn decode(self) -> Result<Bytes, Error> {
        decode(&self.coding, self.content)
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

#[cfg(test)]
mod tests {
    use highwater::Router;
    use highwater::testing::Client;

    use super::*;

    /// Purpose: the extractor, which runs on the worker, decodes nothing: what is wrong with the content, only the handler learns.
    #[test]
    fn the_worker_does_not_decode() {
        let unread = |encoded: Encoded| encoded.content.len().to_string();
        let read = |encoded: Encoded| encoded.decode().map(|content| content.len().to_string());
        let client = Client::new(Router::new().post("/unread", unread).post("/read", read));
        client.set_header("content-encoding", "gzip");
        assert_eq!(client.post("/unread", "no gzip").text(), "7");
        assert_eq!(client.post("/read", "no gzip").status, 400);
    }
}
