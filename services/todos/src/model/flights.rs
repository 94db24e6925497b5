//! Lists that are being read from the store: a request for such a list waits for it, instead of reading it again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::beyond::ListAnswer;

/// Beyond so many entries, those that nobody waits for are removed.
const ENTRIES_MAX: usize = 64;

/// Reads under way, by the list's limit.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<u32, Flight>>);

struct Flight {
    /// The snapshot that was shown when it began.
    number: u64,
    /// Held by those who wait.
    answer: Weak<ListAnswer>,
}

impl Flights {
    /// Joins the read of this list, if one is under way that began under this snapshot or a later one; or begins one.
    pub(super) fn join(
        &self,
        limit: u32,
        number: u64,
        begin: impl FnOnce() -> ListAnswer,
    ) -> Arc<ListAnswer> {
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = flights.get(&limit).filter(|flight| flight.number >= number);
        if let Some(answer) = under_way.and_then(|flight| flight.answer.upgrade())
            && answer.borrow().is_none()
        {
            return answer;
        }
        if flights.len() >= ENTRIES_MAX {
            flights.retain(|_, flight| flight.answer.strong_count() > 0);
        }
        let answer = Arc::new(begin());
        flights.insert(limit, Flight { number, answer: Arc::downgrade(&answer) });
        answer
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    /// Purpose: a list that is on its way is not read again, unless it may be too old, or is there already; and what nobody
    /// waits for is forgotten.
    #[test]
    fn one_read_for_all_who_wait() {
        let flights = Flights::default();
        let mut begun = Vec::new();
        let mut join = |limit, number| {
            flights.join(limit, number, || {
                let (sender, answer) = watch::channel(None);
                begun.push(sender);
                answer
            })
        };
        let first = join(10, 5);
        assert!(Arc::ptr_eq(&first, &join(10, 5)));
        assert!(Arc::ptr_eq(&first, &join(10, 4)), "it shows more than was asked for");
        let second = join(10, 6);
        assert!(!Arc::ptr_eq(&first, &second), "it may show less than was asked for");
        assert!(!Arc::ptr_eq(&second, &join(11, 6)));
        (100..10_000).for_each(|limit| drop(join(limit, 6)));
        assert!(begun[0].receiver_count() == 1 && begun[1].receiver_count() == 1);
        begun[1].send_replace(Some(Ok(bytes::Bytes::new())));
        assert!(flights.0.lock().expect("nothing panics").len() <= ENTRIES_MAX);
        let again = flights.join(10, 6, || watch::channel(None).1);
        assert!(!Arc::ptr_eq(&second, &again), "what was answered is in the cache, if it may be");
    }
}
