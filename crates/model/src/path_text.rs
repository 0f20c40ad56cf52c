//! Paths in stored records: `#[serde(with = "path_text")]`. A path that is UTF-8 is written as a string. Any other path
//! is written as `{"bytes":"2f746d702fff"}`, its bytes in hexadecimal, because JSON strings cannot hold them and a path
//! must come back exactly.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored<'a> {
    Text(std::borrow::Cow<'a, str>),
    Bytes { bytes: String },
}

/// Writes a path.
pub fn serialize<S: Serializer>(path: &Path, s: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => Stored::Text(text.into()).serialize(s),
        None => {
            let mut bytes = String::new();
            for byte in path.as_os_str().as_bytes() {
                let _infallible = write!(bytes, "{byte:02x}");
            }
            Stored::Bytes { bytes }.serialize(s)
        }
    }
}

/// Reads a path.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PathBuf, D::Error> {
    match Stored::deserialize(d)? {
        Stored::Text(text) => Ok(PathBuf::from(text.into_owned())),
        Stored::Bytes { bytes } => {
            let path =
                from_hex(&bytes).ok_or_else(|| D::Error::custom("a path's bytes are not hexadecimal"))?;
            Ok(PathBuf::from(OsString::from_vec(path)))
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|n| u8::try_from(n).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] PathBuf);

    #[test]
    fn every_path_comes_back() {
        for bytes in [&b"/tmp/a"[..], b"", b"/tmp/\xff\xfe", b"\xc3\x28", "/tmp/ä\u{0}\n".as_bytes()] {
            let path = Holder(PathBuf::from(OsString::from_vec(bytes.to_vec())));
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), path, "{text}");
        }
        let odd = Holder(PathBuf::from(OsString::from_vec(b"/\xff".to_vec())));
        assert_eq!(serde_json::to_string(&odd).unwrap(), r#"{"bytes":"2fff"}"#);
        for bad in [r#"{"bytes":"2"}"#, r#"{"bytes":"zz"}"#, "7"] {
            assert!(serde_json::from_str::<Holder>(bad).is_err(), "{bad}");
        }
    }
}
