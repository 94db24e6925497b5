//! Any bytes as a PROXY header: nothing may panic, a header is within its bound and found as soon as it is complete, what was
//! refused stays refused, and what follows makes no difference.
#![no_main]

use highwater_core::proxy_header::{HEADER_MAX, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = parse(data);
    for cut in 0..data.len().min(HEADER_MAX + 1) {
        match parse(&data[..cut]) {
            Ok(None) => {}
            earlier => {
                assert_eq!(earlier, whole, "further bytes make a difference");
                break;
            }
        }
    }
    match whole {
        Ok(None) => assert!(data.len() < HEADER_MAX, "it would grow without bound"),
        Ok(Some(header)) => {
            assert!(header.length <= data.len().min(HEADER_MAX));
            assert_eq!(parse(&data[..header.length - 1]), Ok(None), "it was complete before its end");
        }
        Err(_) => {}
    }
});
