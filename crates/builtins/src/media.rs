//! Pictures and documents. Owns what may enter a conversation: once a vendor refuses a block, every later request that
//! carries it fails too, so what is broken or too large is refused here.

/// The largest picture side that vendors take, in pixels.
const MAX_SIDE: u32 = 8_000;
/// Vendors take 5 MiB a picture, counted in base64.
pub(crate) const MAX_IMAGE: u64 = 5 * 1024 * 1024 / 4 * 3;
/// Vendors take requests of 32 MB; in base64, and with room for the rest, this much fits.
pub(crate) const MAX_PDF: u64 = 22 * 1024 * 1024;
/// The most pages that vendors take.
const MAX_PAGES: usize = 100;

/// A kind of file that models see as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// A picture, with its media type.
    Image(&'static str),
    /// A PDF document.
    Pdf,
}

impl Media {
    /// Looks at a file's first bytes.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"\x89PNG\r\n\x1A\n") {
            Some(Self::Image("image/png"))
        } else if start.starts_with(b"\xFF\xD8\xFF") {
            Some(Self::Image("image/jpeg"))
        } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
            Some(Self::Image("image/gif"))
        } else if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
            Some(Self::Image("image/webp"))
        } else if start.starts_with(b"%PDF-") {
            Some(Self::Pdf)
        } else {
            None
        }
    }

    /// Whether a file of this start that is no proper picture or document is text that begins like one.
    pub(crate) fn may_be_text(self, start: &[u8]) -> bool {
        // The last character may be cut off with the rest of the file.
        let is_utf8 = match std::str::from_utf8(start) {
            Ok(_) => true,
            Err(error) => error.error_len().is_none(),
        };
        let has_objects = self == Self::Pdf && memchr::memmem::find(start, b" 0 obj").is_some();
        is_utf8 && !has_objects && memchr::memchr(0, start).is_none()
    }

    /// The most bytes that are taken.
    pub(crate) fn max_bytes(self) -> u64 {
        match self {
            Self::Image(_) => MAX_IMAGE,
            Self::Pdf => MAX_PDF,
        }
    }
}

/// Checks a picture. Gives width and height, or why it is refused.
pub(crate) fn check_image(media_type: &str, bytes: &[u8]) -> Result<(u32, u32), String> {
    let size = match media_type {
        "image/png" => png(bytes),
        "image/jpeg" => jpeg(bytes),
        "image/gif" => gif(bytes),
        _ => webp(bytes),
    };
    let Some((width, height)) = size.filter(|(w, h)| *w > 0 && *h > 0) else {
        return Err("the picture is broken or cut off".into());
    };
    if width > MAX_SIDE || height > MAX_SIDE {
        return Err(format!(
            "the picture has {width} × {height} pixels; at most {MAX_SIDE} × {MAX_SIDE} can be shown. \
             Make a smaller copy with Bash."
        ));
    }
    Ok((width, height))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 2)?.try_into().ok().map(|b| u32::from(u16::from_be_bytes(b)))
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 2)?.try_into().ok().map(|b| u32::from(u16::from_le_bytes(b)))
}

fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 3).map(|b| u32::from(b[0]) | u32::from(b[1]) << 8 | u32::from(b[2]) << 16)
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    if bytes.get(12..16)? != b"IHDR" {
        return None;
    }
    let (mut at, mut data) = (8_usize, false);
    loop {
        let len = usize::try_from(be32(bytes, at)?).ok()?;
        let kind = bytes.get(at + 4..at + 8)?;
        let end = at.checked_add(12)?.checked_add(len)?;
        if end > bytes.len() {
            return None;
        }
        match kind {
            b"IDAT" => data = true,
            b"IEND" => break,
            _ => {}
        }
        at = end;
    }
    data.then_some((be32(bytes, 16)?, be32(bytes, 20)?))
}

fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    let mut size = None;
    // Segments up to the pixels, which end with an end marker.
    loop {
        if *bytes.get(at)? != 0xFF {
            return None;
        }
        while *bytes.get(at)? == 0xFF {
            at += 1;
        }
        let marker = *bytes.get(at)?;
        at += 1;
        match marker {
            0xD0..=0xD7 | 0x01 => {}
            0xD9 => return None,
            0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                size = Some((be16(bytes, at + 5)?, be16(bytes, at + 3)?));
                at += usize::try_from(be16(bytes, at)?).ok()?;
            }
            0xDA => break,
            _ => at += usize::try_from(be16(bytes, at)?).ok()?,
        }
    }
    memchr::memmem::rfind(bytes.get(at..)?, b"\xFF\xD9")?;
    size
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    let end = bytes.iter().rposition(|b| *b != 0)?;
    if bytes.get(end) != Some(&0x3B) || bytes.len() < 14 {
        return None;
    }
    Some((le16(bytes, 6)?, le16(bytes, 8)?))
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let len = bytes.get(4..8)?.try_into().ok().map(u32::from_le_bytes)?;
    if usize::try_from(len).ok()?.checked_add(8)? > bytes.len() {
        return None;
    }
    match bytes.get(12..16)? {
        b"VP8X" => Some((le24(bytes, 24)? + 1, le24(bytes, 27)? + 1)),
        b"VP8 " => Some((le16(bytes, 26)? & 0x3FFF, le16(bytes, 28)? & 0x3FFF)),
        b"VP8L" => {
            let bits = bytes.get(21..25)?.try_into().ok().map(u32::from_le_bytes)?;
            Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        }
        _ => None,
    }
}

const PAGE_HINT: &str = "Take the pages you need out with Bash (for example `pdftotext -f 1 -l 20 FILE -` or \
                         `qpdf FILE --pages . 1-20 -- part.pdf`) and read that.";

/// Checks a PDF. Gives the number of its pages, or why it is refused.
pub(crate) fn check_pdf(bytes: &[u8]) -> Result<usize, String> {
    let find = |what: &[u8]| memchr::memmem::find(bytes, what).is_some();
    let end = &bytes[bytes.len().saturating_sub(2_048)..];
    if memchr::memmem::find(end, b"%%EOF").is_none() || !find(b"startxref") {
        return Err(format!("the PDF is broken or cut off. {PAGE_HINT}"));
    }
    if is_encrypted(bytes) {
        return Err(format!("the PDF is encrypted. {PAGE_HINT}"));
    }
    match pages(bytes) {
        None => Err(format!("the number of the PDF's pages cannot be told. {PAGE_HINT}")),
        Some(n) if n > MAX_PAGES => {
            Err(format!("the PDF has {n} pages; at most {MAX_PAGES} can be shown. {PAGE_HINT}"))
        }
        Some(n) => Ok(n),
    }
}

/// Whether some dictionary has the entry, which refers to an object or is a dictionary; the word alone means nothing.
fn is_encrypted(bytes: &[u8]) -> bool {
    const KEY: &[u8] = b"/Encrypt";
    memchr::memmem::find_iter(bytes, KEY).any(|at| {
        let after = bytes.get(at + KEY.len()..).unwrap_or_default();
        let value = skip_space(&after[..after.len().min(100)]);
        let mut rest = value;
        for _ in 0..2 {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let next = skip_space(&rest[digits..]);
            if digits == 0 || next.len() == rest.len() - digits {
                return value.starts_with(b"<<");
            }
            rest = next;
        }
        rest.starts_with(b"R")
    })
}

/// The largest number that the page tree, the pages themselves and a linearised header give.
fn pages(bytes: &[u8]) -> Option<usize> {
    let mut visible = scan_pages(bytes);
    for unpacked in object_streams(bytes) {
        let more = scan_pages(&unpacked);
        visible.0 += more.0;
        visible.1 = visible.1.max(more.1);
    }
    let n = visible.0.max(visible.1);
    (n > 0).then_some(n)
}

/// Page objects, and the largest `/Count` of a page tree.
fn scan_pages(bytes: &[u8]) -> (usize, usize) {
    let (mut leaves, mut most) = (0, 0);
    for at in memchr::memmem::find_iter(bytes, b"/Type") {
        let rest = skip_space(bytes.get(at + 5..).unwrap_or_default());
        let Some(name) = rest.strip_prefix(b"/Page") else { continue };
        match name.first() {
            Some(b's') => most = most.max(tree_count(bytes, at)),
            Some(c) if c.is_ascii_alphanumeric() => {}
            _ => leaves += 1,
        }
    }
    (leaves, most)
}

/// The `/Count` that stands in the same dictionary as the `/Type` at `at`.
fn tree_count(bytes: &[u8], at: usize) -> usize {
    let start = at.saturating_sub(4_096);
    let before = memchr::memmem::rfind(&bytes[start..at], b"obj").map_or(start, |p| start + p);
    let after = bytes.get(at..).unwrap_or_default();
    let end = memchr::memmem::find(after, b"endobj").map_or(after.len().min(4_096), |p| p) + at;
    let dictionary = bytes.get(before..end).unwrap_or_default();
    memchr::memmem::find_iter(dictionary, b"/Count")
        .filter_map(|p| {
            let digits = skip_space(dictionary.get(p + 6..)?);
            let end = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
            std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
        })
        .max()
        .unwrap_or(0)
}

/// Since PDF 1.5 page objects may lie in packed streams.
fn object_streams(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    const MAX_UNPACKED: usize = 16 * 1024 * 1024;
    memchr::memmem::find_iter(bytes, b"/ObjStm").filter_map(|at| {
        let rest = bytes.get(at..)?;
        let start = memchr::memmem::find(rest, b"stream")? + 6;
        let data = rest.get(start..)?;
        let data = data.strip_prefix(b"\r\n").or_else(|| data.strip_prefix(b"\n")).unwrap_or(data);
        let end = memchr::memmem::find(data, b"endstream").unwrap_or(data.len());
        miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&data[..end], MAX_UNPACKED).ok()
    })
}

fn skip_space(bytes: &[u8]) -> &[u8] {
    let at = bytes.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(bytes.len());
    &bytes[at..]
}
