//! The encoders of three crates behind one type: bytes in, fewer bytes out.

use std::cell::RefCell;
use std::io::{self, Write};

use flate2::write::GzEncoder;
use flate2::{Compress, FlushCompress, Status};

use crate::content::coding::Coding;

/// The levels trade time for size. These take 2 to 8 ns per byte of JSON, and save nearly what the best levels do; a guess
/// from the crates' own figures, for content that is made for one response.
const GZIP_LEVEL: u32 = 4;
const BROTLI_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 3;

/// Its window, as a power of two: the largest there is.
const GZIP_WINDOW: u8 = 15;

/// Brotli's window, as a power of two: 512 KiB, which is as much as the largest content that is compressed at once.
const BROTLI_WINDOW: u32 = 19;

/// What brotli collects before it encodes.
const BROTLI_BUFFER_BYTES: usize = 4096;

thread_local! {
    /// An encoder of gzip has a quarter of a megabyte of tables, one of zstd a megabyte: they are made once per thread.
    static GZIP: RefCell<Option<Compress>> = const { RefCell::new(None) };
    static ZSTD: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
}

/// `bytes` in `coding`, unless that is not smaller.
pub(super) fn compress(coding: Coding, bytes: &[u8]) -> Option<Vec<u8>> {
    let compressed = match coding {
        Coding::Identity => return None,
        Coding::Zstd => ZSTD.with_borrow_mut(|kept| {
            if kept.is_none() {
                *kept = Some(zstd::bulk::Compressor::new(ZSTD_LEVEL)?);
            }
            kept.as_mut().expect("it was made").compress(bytes)
        }),
        Coding::Gzip => return GZIP.with_borrow_mut(|kept| gzip(kept, bytes)),
        Coding::Brotli => Encoder::new(coding).and_then(|mut encoder| {
            encoder.write(bytes)?;
            encoder.finish()
        }),
    };
    compressed.ok().filter(|compressed| compressed.len() < bytes.len())
}

/// `bytes` in gzip, unless that is not smaller.
fn gzip(kept: &mut Option<Compress>, bytes: &[u8]) -> Option<Vec<u8>> {
    let new = || Compress::new_gzip(flate2::Compression::new(GZIP_LEVEL), GZIP_WINDOW);
    let encoder = kept.get_or_insert_with(new);
    encoder.reset();
    // What does not fit is not smaller.
    let mut compressed = Vec::with_capacity(bytes.len());
    let status = encoder.compress_vec(bytes, &mut compressed, FlushCompress::Finish);
    compressed.shrink_to_fit();
    matches!(status, Ok(Status::StreamEnd)).then_some(compressed)
}

/// An encoder of content that comes in pieces.
pub(super) enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    /// All of its output was taken.
    Finished,
}

impl Encoder {
    /// # Errors
    /// If there is no memory for it, or the coding is none.
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        Ok(match coding {
            Coding::Identity => return Err(io::ErrorKind::Unsupported.into()),
            Coding::Gzip => {
                Encoder::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL)))
            }
            Coding::Brotli => Encoder::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER_BYTES,
                BROTLI_LEVEL,
                BROTLI_WINDOW,
            ))),
            Coding::Zstd => {
                Encoder::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?)
            }
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Brotli(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
            Encoder::Finished => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Puts out everything that was written, so that the other side can decode it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Brotli(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
            Encoder::Finished => Ok(()),
        }
    }

    /// What was put out since it was taken last.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
            Encoder::Finished => unreachable!("nobody asks it for more"),
        }
    }

    /// Ends the content; returns the rest of the output.
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        match std::mem::replace(self, Encoder::Finished) {
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Brotli(encoder) => Ok(encoder.into_inner()),
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Finished => Ok(Vec::new()),
        }
    }
}
