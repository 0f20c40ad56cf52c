//! Encoded messages, so that a turn encodes only what is new. Owns the cache; it can be lost at any time. An entry is
//! known by its `Arc`: a `Weak` beside it keeps the address from being used again and lets the content go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is smaller is encoded anew faster than it is looked up and kept.
const WORTH_KEEPING: usize = 256;
const SWEEP_EVERY: u64 = 256;
const ROOM: usize = 256;

pub(crate) struct EncodeCache<T> {
    limit: usize,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    entries: HashMap<Key, Entry<T>>,
    bytes: usize,
    requests: u64,
    inserts: u64,
}

/// Address, and which of two forms.
type Key = (usize, bool);

struct Entry<T> {
    owner: Weak<T>,
    encoded: Arc<[u8]>,
    used: u64,
}

impl<T> EncodeCache<T> {
    /// Keeps up to about `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let inner = Inner { entries: HashMap::new(), bytes: 0, requests: 0, inserts: 0 };
        Self { limit, inner: Mutex::new(inner) }
    }

    /// Appends all items' encodings to `out`, with commas between them, and gives where each ends. `form` is which form
    /// an item is to have.
    pub(crate) fn append<E>(
        &self,
        out: &mut Vec<u8>,
        items: &[Arc<T>],
        form: impl Fn(&T) -> bool,
        encode: impl Fn(&T, bool) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<usize>, E> {
        let keys: Vec<Key> = items.iter().map(|item| (Arc::as_ptr(item).addr(), form(item))).collect();
        let mut found = self.find(&keys);
        let mut fresh = Vec::new();
        for ((item, key), hit) in items.iter().zip(&keys).zip(&mut found) {
            if hit.is_none() {
                let encoded: Arc<[u8]> = encode(item, key.1)?.into();
                if encoded.len() >= WORTH_KEEPING {
                    fresh.push((*key, Arc::downgrade(item), Arc::clone(&encoded)));
                }
                *hit = Some(encoded);
            }
        }
        // One allocation, with room for what callers add at the end: a long conversation is megabytes.
        out.reserve(found.iter().flatten().map(|e| e.len() + 1).sum::<usize>() + ROOM);
        let mut ends = Vec::with_capacity(items.len());
        for (i, encoded) in found.iter().flatten().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(encoded);
            ends.push(out.len());
        }
        self.keep(fresh);
        Ok(ends)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, keys: &[Key]) -> Vec<Option<Arc<[u8]>>> {
        let mut inner = self.lock();
        inner.requests += 1;
        let now = inner.requests;
        let get = |key| {
            let entry = inner.entries.get_mut(key)?;
            entry.used = now;
            Some(Arc::clone(&entry.encoded))
        };
        keys.iter().map(get).collect()
    }

    fn keep(&self, fresh: Vec<(Key, Weak<T>, Arc<[u8]>)>) {
        if fresh.is_empty() {
            return;
        }
        let mut inner = self.lock();
        let used = inner.requests;
        for (key, owner, encoded) in fresh {
            inner.bytes += encoded.len();
            inner.inserts += 1;
            let entry = Entry { owner, encoded, used };
            if let Some(old) = inner.entries.insert(key, entry) {
                inner.bytes -= old.encoded.len();
            }
            if inner.bytes > self.limit || inner.inserts.is_multiple_of(SWEEP_EVERY) {
                inner.shrink(self.limit);
            }
        }
    }
}

impl<T> Inner<T> {
    /// Drops what nobody holds any more, then what was not used for longest.
    fn shrink(&mut self, limit: usize) {
        self.entries.retain(|_, e| e.owner.strong_count() > 0);
        self.bytes = self.entries.values().map(|e| e.encoded.len()).sum();
        if self.bytes <= limit {
            return;
        }
        let mut ages: Vec<(u64, Key)> = self.entries.iter().map(|(key, e)| (e.used, *key)).collect();
        ages.sort_unstable();
        for (_, key) in ages {
            // To half, so that a full cache is not sorted at each insert.
            if self.bytes <= limit / 2 {
                break;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.encoded.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    fn run(cache: &EncodeCache<String>, items: &[Arc<String>]) -> (String, usize) {
        let calls = Cell::new(0);
        let encode = |item: &String, _| {
            calls.set(calls.get() + 1);
            Ok::<_, Infallible>(item.clone().into_bytes())
        };
        let mut out = Vec::new();
        cache.append(&mut out, items, |_| false, encode).unwrap();
        (String::from_utf8(out).unwrap(), calls.get())
    }

    fn big(c: char) -> Arc<String> {
        Arc::new(c.to_string().repeat(300))
    }

    #[test]
    fn only_what_is_new_is_encoded() {
        let cache = EncodeCache::new(1 << 20);
        let mut items = vec![big('a'), big('b')];
        assert_eq!(run(&cache, &items).1, 2);
        items.push(big('c'));
        let (text, calls) = run(&cache, &items);
        assert_eq!(calls, 1);
        assert_eq!(text, items.iter().map(|i| i.as_str()).collect::<Vec<_>>().join(","));
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_the_dead() {
        let cache = EncodeCache::new(3000);
        let all: Vec<_> = (0..100).map(|_| big('x')).collect();
        for item in &all {
            run(&cache, std::slice::from_ref(item));
            assert!(cache.lock().bytes <= 3000);
        }
        drop(all);
        for _ in 0..SWEEP_EVERY {
            run(&cache, &[big('y')]);
        }
        assert!(cache.lock().entries.len() <= 1);
    }
}
