//! Encoded messages, so that a request encodes only what is new. Owns the cache; it can be lost at any time.
//!
//! An entry is the encoding of one message or of a chunk of messages, and is known by the address of its `Arc`: a `Weak`
//! beside it keeps the address from being used again and lets the content go. A long conversation is a few chunks, so a
//! request looks up some dozens of entries and copies their bytes, and asks nothing of each message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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

/// The items to encode: chunks that do not change any more, and what follows them.
pub(crate) struct Items<'a, T> {
    pub(crate) style: &'a Style,
    pub(crate) chunks: &'a [Arc<[Arc<T>]>],
    pub(crate) tail: &'a [Arc<T>],
}

/// What decides the form of all items of a request: the model that is asked, and one more choice of the API's encoder. The
/// form of a single item follows from it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Style {
    pub(crate) model: Arc<str>,
    pub(crate) choice: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    /// An item by its address, and which of two forms.
    One(usize, bool),
    /// A chunk by its address.
    Chunk(usize, Style),
}

enum Owner<T> {
    One(Weak<T>),
    Chunk(Weak<[Arc<T>]>),
}

struct Entry<T> {
    owner: Owner<T>,
    encoded: Arc<[u8]>,
    used: u64,
}

/// An encoding that is to be kept.
type Fresh<T> = (Key, Owner<T>, Arc<[u8]>);

impl<T> Owner<T> {
    fn is_alive(&self) -> bool {
        match self {
            Self::One(item) => item.strong_count() > 0,
            Self::Chunk(chunk) => chunk.strong_count() > 0,
        }
    }
}

impl<T> EncodeCache<T> {
    /// Keeps up to about `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let inner = Inner { entries: HashMap::new(), bytes: 0, requests: 0, inserts: 0 };
        Self { limit, inner: Mutex::new(inner) }
    }

    /// Appends all items' encodings to `out`, with commas between them, and gives where each item of the tail ends. `form`
    /// is which form an item is to have in this style.
    pub(crate) fn append<E>(
        &self,
        out: &mut Vec<u8>,
        items: &Items<'_, T>,
        form: impl Fn(&T) -> bool,
        encode: impl Fn(&T, bool) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<usize>, E> {
        let chunk_keys = items.chunks.iter().map(|chunk| chunk_key(chunk, items.style));
        let keys: Vec<Key> = chunk_keys.chain(items.tail.iter().map(|item| key(item, &form))).collect();
        let mut found = self.find(&keys);
        let (mut fresh, mut joined) = (Vec::new(), Vec::new());
        let (chunk_hits, tail_hits) = found.split_at_mut(items.chunks.len());
        for ((chunk, hit), key) in items.chunks.iter().zip(chunk_hits).zip(&keys) {
            if hit.is_none() {
                let encoded = self.chunk(chunk, &form, &encode, &mut joined)?;
                fresh.push((key.clone(), Owner::Chunk(Arc::downgrade(chunk)), Arc::clone(&encoded)));
                *hit = Some(encoded);
            }
        }
        for ((item, hit), key) in items.tail.iter().zip(tail_hits).zip(keys.iter().skip(items.chunks.len())) {
            if hit.is_none() {
                let encoded: Arc<[u8]> = encode(item, form(item))?.into();
                fresh.push((key.clone(), Owner::One(Arc::downgrade(item)), Arc::clone(&encoded)));
                *hit = Some(encoded);
            }
        }
        // One allocation, with room for what callers add at the end: a long conversation is megabytes.
        out.reserve(found.iter().flatten().map(|e| e.len() + 1).sum::<usize>() + ROOM);
        let mut ends = Vec::with_capacity(items.tail.len());
        for (i, encoded) in found.iter().flatten().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(encoded);
            if i >= items.chunks.len() {
                ends.push(out.len());
            }
        }
        self.keep(fresh, &joined);
        Ok(ends)
    }

    /// Encodes a chunk, of what was kept of its items where that is possible. `joined` takes the items' keys.
    fn chunk<E>(
        &self,
        chunk: &[Arc<T>],
        form: impl Fn(&T) -> bool,
        encode: impl Fn(&T, bool) -> Result<Vec<u8>, E>,
        joined: &mut Vec<Key>,
    ) -> Result<Arc<[u8]>, E> {
        let keys: Vec<Key> = chunk.iter().map(|item| key(item, &form)).collect();
        let mut bytes = Vec::new();
        for (i, (item, hit)) in chunk.iter().zip(self.find(&keys)).enumerate() {
            if i > 0 {
                bytes.push(b',');
            }
            match hit {
                Some(encoded) => bytes.extend_from_slice(&encoded),
                None => bytes.append(&mut encode(item, form(item))?),
            }
        }
        joined.extend(keys);
        Ok(bytes.into())
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

    /// Keeps new encodings, and drops those of items that are kept as a chunk now.
    fn keep(&self, fresh: Vec<Fresh<T>>, joined: &[Key]) {
        if fresh.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for key in joined {
            if let Some(old) = inner.entries.remove(key) {
                inner.bytes -= old.encoded.len();
            }
        }
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

fn chunk_key<T>(chunk: &Arc<[Arc<T>]>, style: &Style) -> Key {
    Key::Chunk(chunk.as_ptr().addr(), style.clone())
}

fn key<T>(item: &Arc<T>, form: impl Fn(&T) -> bool) -> Key {
    Key::One(Arc::as_ptr(item).addr(), form(item))
}

impl<T> Inner<T> {
    /// Drops what nobody holds any more, then what was not used for longest.
    fn shrink(&mut self, limit: usize) {
        self.entries.retain(|_, e| e.owner.is_alive());
        self.bytes = self.entries.values().map(|e| e.encoded.len()).sum();
        if self.bytes <= limit {
            return;
        }
        let ages = self.entries.iter().map(|(key, e)| (e.used, key.clone()));
        let mut ages: Vec<(u64, Key)> = ages.collect();
        ages.sort_unstable_by_key(|(used, _)| *used);
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

    fn style(model: &str) -> Style {
        Style { model: model.into(), choice: false }
    }

    /// Gives what was written and how many items were encoded for it.
    fn run(
        cache: &EncodeCache<String>,
        chunks: &[Arc<[Arc<String>]>],
        tail: &[Arc<String>],
        model: &str,
    ) -> (String, usize) {
        let calls = Cell::new(0);
        let encode = |item: &String, form| {
            calls.set(calls.get() + 1);
            Ok::<_, Infallible>(if form { item.to_uppercase().into() } else { item.clone().into() })
        };
        let mut out = Vec::new();
        let form = |_: &String| model == "loud";
        let items = Items { style: &style(model), chunks, tail };
        cache.append(&mut out, &items, form, encode).unwrap();
        (String::from_utf8(out).unwrap(), calls.get())
    }

    fn big(c: char) -> Arc<String> {
        Arc::new(c.to_string().repeat(300))
    }

    fn small(text: &str) -> Arc<String> {
        Arc::new(text.to_owned())
    }

    #[test]
    fn only_what_is_new_is_encoded_however_small_it_is() {
        let cache = EncodeCache::new(1 << 20);
        let mut items = vec![small("a"), big('b')];
        assert_eq!(run(&cache, &[], &items, "m").1, 2);
        items.push(small("c"));
        let (text, calls) = run(&cache, &[], &items, "m");
        assert_eq!(calls, 1);
        assert_eq!(text, items.iter().map(|i| i.as_str()).collect::<Vec<_>>().join(","));
    }

    #[test]
    fn a_chunk_is_made_of_what_is_known_of_its_items_and_takes_their_place() {
        let cache = EncodeCache::new(1 << 20);
        let items = [small("a"), small("b"), small("c")];
        assert_eq!(run(&cache, &[], &items, "m"), ("a,b,c".to_owned(), 3));
        let chunks: [Arc<[Arc<String>]>; 1] = [Arc::new([Arc::clone(&items[0]), Arc::clone(&items[1])])];
        let tail = [Arc::clone(&items[2]), small("d")];
        assert_eq!(run(&cache, &chunks, &tail, "m"), ("a,b,c,d".to_owned(), 1));
        assert_eq!(cache.lock().entries.len(), 3, "the chunk and the two items behind it");
        assert_eq!(cache.lock().bytes, "a,b".len() + "c".len() + "d".len());
        assert_eq!(run(&cache, &chunks, &tail, "m"), ("a,b,c,d".to_owned(), 0));
    }

    #[test]
    fn a_chunk_is_encoded_for_each_style() {
        let cache = EncodeCache::new(1 << 20);
        let chunks: [Arc<[Arc<String>]>; 1] = [Arc::new([small("a"), small("b")])];
        assert_eq!(run(&cache, &chunks, &[], "m").0, "a,b");
        assert_eq!(run(&cache, &chunks, &[], "loud").0, "A,B");
        assert_eq!(run(&cache, &chunks, &[], "m"), ("a,b".to_owned(), 0));
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_the_dead() {
        let cache = EncodeCache::new(3000);
        let all: Vec<_> = (0..100).map(|_| big('x')).collect();
        for item in &all {
            run(&cache, &[], std::slice::from_ref(item), "m");
            assert!(cache.lock().bytes <= 3000);
        }
        let chunks: Vec<Arc<[Arc<String>]>> = (0..20).map(|_| Arc::from([big('x')])).collect();
        for chunk in &chunks {
            run(&cache, std::slice::from_ref(chunk), &[], "m");
            assert!(cache.lock().bytes <= 3000);
        }
        drop((all, chunks));
        for _ in 0..SWEEP_EVERY {
            run(&cache, &[], &[big('y')], "m");
        }
        assert!(cache.lock().entries.len() <= 1);
    }
}
