//! What a hit in the cache costs the allocator: nothing.
#![forbid(unsafe_code)]

use allocation_counter::measure;
use bytes::Bytes;
use highwater::cache::{Cache, CacheLimits};

/// Purpose: the plain path allocates nothing, and a cached answer is the plainest there is. The
/// first request builds, the second copies the answer for its thread, and from then on:
#[test]
fn a_hit_allocates_nothing() {
    let cache = Cache::<String>::new(CacheLimits::default());
    let key = "/search?starts_at=2021-06-30&ends_at=2021-12-31";
    for size in [0, 13, 40_000, 200_000] {
        let ask = |build: bool| {
            let answer = cache.get_or_build(key, size as u64, || {
                assert!(build, "must be in the cache");
                Bytes::from(vec![b'x'; size])
            });
            assert_eq!(answer.len(), size);
        };
        ask(true);
        ask(false);
        let allocated = measure(|| (0..100).for_each(|_| ask(false)));
        assert_eq!((allocated.count_total, allocated.bytes_total), (0, 0), "at {size} bytes");
    }
}
