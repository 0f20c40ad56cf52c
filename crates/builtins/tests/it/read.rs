//! Read.

use std::fmt::Write as _;

use open_agent_model::{Change, ResultBlock, Source};
use serde_json::json;

use crate::bash::resident_kb;
use crate::world::{World, details, text};

#[tokio::test]
async fn lines_come_with_their_numbers() {
    let w = World::new();
    let path = w.file("a.txt", "one\ntwo\r\nthree");
    let output = w.call("Read", json!({"file_path": "a.txt"})).await.unwrap();
    assert_eq!(text(&output), "     1\tone\n     2\ttwo\n     3\tthree\n");
    let file = &details(&output)["file"];
    assert_eq!(*file, json!({"filePath": path, "startLine": 1, "numLines": 3, "totalLines": 3}));
    assert!(
        matches!(&output.changes[..], [Change::FileSeen(seen)] if seen.path == path && seen.stamp.len == 14)
    );
    assert_eq!(w.ok("Read", json!({"file_path": "a.txt", "offset": 3})).await, "     3\tthree\n");
}

#[tokio::test]
async fn a_part_says_what_it_is_a_part_of() {
    let w = World::new();
    let body: String = (1..=5_000).fold(String::new(), |mut s, n| {
        let _ = writeln!(s, "line {n}");
        s
    });
    w.file("a.txt", body);
    let shown = w.ok("Read", json!({"file_path": "a.txt"})).await;
    assert_eq!(shown.lines().count(), 2_002);
    assert!(
        shown.ends_with("\n[Lines 1-2000 of 5000. Read on with offset 2001.]"),
        "{}",
        &shown[shown.len() - 100..]
    );
    let part = w.ok("Read", json!({"file_path": "a.txt", "offset": 4_999, "limit": 10})).await;
    assert_eq!(part, "  4999\tline 4999\n  5000\tline 5000\n");
    let behind = w.ok("Read", json!({"file_path": "a.txt", "offset": 6_000})).await;
    assert_eq!(behind, "[The file has only 5000 lines; line 6000 is behind its end.]");
    let behind = w.ok("Read", json!({"file_path": "a.txt", "offset": u64::MAX})).await;
    assert_eq!(behind, format!("[The file has only 5000 lines; line {} is behind its end.]", u64::MAX));
    for offset in [json!("4999"), json!(4999.0)] {
        let part = w.ok("Read", json!({"file_path": "a.txt", "offset": offset, "limit": "1"})).await;
        assert!(part.starts_with("  4999\tline 4999\n\n[Lines 4999-4999 of 5000."), "{part}");
    }
    for offset in [json!("x"), json!(1.5), json!([1])] {
        let error = w.fails("Read", json!({"file_path": "a.txt", "offset": offset})).await;
        assert!(error.contains("offset has to be a whole number, but is a"), "{error}");
    }
    let error = w.fails("Read", json!({"file_path": "a.txt", "offset": -1})).await;
    assert!(error.contains("integer `-1`, expected u64"), "{error}");
    for input in [json!({"file_path": "a.txt", "offset": 0}), json!({"file_path": "a.txt", "limit": 0})] {
        assert!(w.fails("Read", input).await.contains("count from 1"));
    }
}

#[tokio::test]
async fn long_lines_and_long_files_are_bounded() {
    let w = World::new();
    w.file("wide.txt", format!("{}\nnext\n", "é".repeat(3_000_000)));
    let shown = w.ok("Read", json!({"file_path": "wide.txt"})).await;
    assert!(
        shown.contains("… [line of 6000000 bytes, cut]\n     2\tnext\n"),
        "{}",
        &shown[shown.len() - 200..]
    );
    assert!(shown.chars().count() < 2_300 && !shown.contains("UTF-8"));
    w.file("long.txt", format!("{}\n", "x".repeat(1_000)).repeat(1_000));
    let shown = w.ok("Read", json!({"file_path": "long.txt"})).await;
    assert!(shown.chars().count() <= 100_000);
    assert!(
        shown.contains("of 1000, as much as can be shown at once. Read on with offset 99."),
        "{}",
        &shown[shown.len() - 200..]
    );
}

#[tokio::test]
async fn any_size_is_read_in_bounded_memory() {
    open_agent_testkit::in_own_process!();
    let w = World::new();
    let path = w.path("big.txt");
    let file = std::fs::File::create(&path).unwrap();
    let mut out = std::io::BufWriter::new(file);
    let line = format!("{}\n", "x".repeat(99));
    for _ in 0..1_500_000 {
        std::io::Write::write_all(&mut out, line.as_bytes()).unwrap();
    }
    std::io::Write::flush(&mut out).unwrap();
    let before = resident_kb();
    let shown = w.ok("Read", json!({"file_path": path, "offset": 1_499_999, "limit": 5})).await;
    assert_eq!(shown.lines().count(), 2);
    assert!(resident_kb() - before < 16 * 1024);
}

#[tokio::test]
async fn encodings_are_decoded() {
    let w = World::new();
    w.file("mark.txt", "\u{feff}é\n");
    assert_eq!(w.ok("Read", json!({"file_path": "mark.txt"})).await, "     1\té\n");
    for (mark, unit) in
        [(&b"\xFF\xFE"[..], u16::to_le_bytes as fn(u16) -> [u8; 2]), (&b"\xFE\xFF"[..], u16::to_be_bytes)]
    {
        let bytes: Vec<u8> = "ü😀\r\nzwei\n".encode_utf16().flat_map(unit).collect();
        w.file("wide.txt", [mark, &bytes].concat());
        let shown = w.ok("Read", json!({"file_path": "wide.txt"})).await;
        assert!(shown.starts_with("     1\tü😀\n     2\tzwei\n\n[The file is encoded in UTF-16"), "{shown}");
    }
    w.file("latin.txt", b"caf\xE9\n\x93quoted\x94\n");
    let shown = w.ok("Read", json!({"file_path": "latin.txt"})).await;
    assert!(
        shown.starts_with("     1\tcafé\n     2\t“quoted”\n\n[2 lines with bytes that are no UTF-8"),
        "{shown}"
    );
}

#[tokio::test]
async fn what_is_no_text_says_what_it_is() {
    let w = World::new();
    w.file("empty.txt", "");
    assert_eq!(w.ok("Read", json!({"file_path": "empty.txt"})).await, "The file is empty.");
    w.file("prog", b"\x7FELF\x02\x01\0\0\0\0");
    let error = w.fails("Read", json!({"file_path": "prog"})).await;
    assert!(error.contains("binary file of 10 bytes"), "{error}");
    std::fs::create_dir(w.path("d")).unwrap();
    assert!(w.fails("Read", json!({"file_path": "d"})).await.contains("is a folder. List it with Glob"));
    assert!(w.fails("Read", json!({"file_path": "/dev/zero"})).await.contains("is a device"));
    rustix_fifo(&w.path("pipe"));
    assert!(w.fails("Read", json!({"file_path": "pipe"})).await.contains("is a named pipe"));
}

fn rustix_fifo(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn a_file_that_is_missing_brings_others_to_mind() {
    let w = World::new();
    w.file("src/parser.rs", "");
    let error = w.fails("Read", json!({"file_path": "src/praser.rs"})).await;
    assert!(
        error.contains("does not exist")
            && error.contains(&format!("Did you mean {}?", w.path("src/parser.rs").display())),
        "{error}"
    );
    let error = w.fails("Read", json!({"file_path": "zzz"})).await;
    assert!(!error.contains("Did you mean"), "{error}");
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1A\n".to_vec();
    let mut chunk = |kind: &[u8], data: &[u8]| {
        bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        bytes.extend(kind);
        bytes.extend(data);
        bytes.extend([0; 4]);
    };
    chunk(b"IHDR", &[&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat());
    chunk(b"IDAT", b"data");
    chunk(b"IEND", b"");
    bytes
}

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = b"\xFF\xD8\xFF\xE0\0\x04ab\xFF\xC0\0\x0B\x08".to_vec();
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend(b"\x01\x01\x11\0\xFF\xDA\0\x02pixels\xFF\xD9");
    bytes
}

#[tokio::test]
async fn pictures_are_shown_as_such() {
    let w = World::new();
    let gif = b"GIF89a\x02\0\x03\0\0\0\0data;".to_vec();
    let webp = [&b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0"[..], &[1, 0, 0, 2, 0, 0], &[0; 4]].concat();
    for (name, bytes, media, size) in [
        ("a.png", png(2, 3), "image/png", (2, 3)),
        ("b.jpg", jpeg(2, 3), "image/jpeg", (2, 3)),
        ("c.gif", gif, "image/gif", (2, 3)),
        ("d.webp", webp, "image/webp", (2, 3)),
        // What it is called does not matter.
        ("e.txt", png(7, 8), "image/png", (7, 8)),
    ] {
        w.file(name, &bytes);
        let output = w.call("Read", json!({"file_path": name})).await.unwrap();
        let [ResultBlock::Image { source: Source::Inline { media_type, data } }] = &output.content[..] else {
            panic!("{output:?}");
        };
        assert_eq!(media_type, media);
        assert_eq!(data.len(), bytes.len().div_ceil(3) * 4);
        let file = &details(&output)["file"];
        assert_eq!((&file["width"], &file["height"]), (&json!(size.0), &json!(size.1)));
    }
}

#[tokio::test]
async fn h_red_01_a_picture_that_a_vendor_refuses_never_gets_in() {
    let w = World::new();
    for (name, bytes, says) in [
        ("wide.png", png(8_001, 10), "8001 × 10 pixels; at most 8000 × 8000"),
        ("tall.jpg", jpeg(10, 9_000), "10 × 9000 pixels"),
        ("cut.png", png(2, 3)[..40].to_vec(), "broken or cut off"),
        ("cut.jpg", jpeg(2, 3)[..22].to_vec(), "broken or cut off"),
        ("empty.png", png(0, 3), "broken or cut off"),
        ("heavy.png", [png(2, 3), vec![0; 4_000_000]].concat(), "bytes are too many"),
    ] {
        w.file(name, bytes);
        let error = w.fails("Read", json!({"file_path": name})).await;
        assert!(error.contains(says), "{name}: {error}");
    }
}

fn pdf(pages: usize) -> String {
    let mut text = String::from("%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n");
    let _ = writeln!(text, "2 0 obj<</Type /Pages/Count {pages}/Kids[]>>endobj");
    for n in 0..pages {
        let _ = writeln!(text, "{} 0 obj<</Type/Page/Parent 2 0 R>>endobj", n + 3);
    }
    text.push_str("trailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF\n");
    text
}

#[tokio::test]
async fn documents_are_shown_as_such() {
    let w = World::new();
    w.file("a.pdf", pdf(3));
    let output = w.call("Read", json!({"file_path": "a.pdf"})).await.unwrap();
    let [ResultBlock::Document { source: Source::Inline { media_type, .. }, title }] = &output.content[..]
    else {
        panic!("{output:?}");
    };
    assert_eq!((media_type.as_str(), title.as_deref()), ("application/pdf", Some("a.pdf")));
    assert_eq!(details(&output)["file"]["pages"], 3);
}

#[tokio::test]
async fn h_red_02_a_pdf_that_a_vendor_refuses_never_gets_in() {
    let w = World::new();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib("<</Type/Page>>\n".repeat(101).as_bytes(), 6);
    let mut modern = b"%PDF-1.5\n1 0 obj<</Type/ObjStm/Filter/FlateDecode>>stream\n".to_vec();
    modern.extend(packed);
    modern.extend(b"\nendstream endobj\nstartxref\n0\n%%EOF");
    for (name, bytes, says) in [
        ("long.pdf", pdf(101).into_bytes(), "has 101 pages; at most 100"),
        ("modern.pdf", modern, "has 101 pages"),
        ("secret.pdf", pdf(1).replace("/Root", "/Encrypt 9 0 R/Root").into_bytes(), "is encrypted"),
        ("cut.pdf", pdf(3).into_bytes()[..60].to_vec(), "broken or cut off"),
        ("none.pdf", pdf(0).into_bytes(), "cannot be told"),
        ("heavy.pdf", [pdf(1).into_bytes(), vec![b' '; 23 * 1024 * 1024]].concat(), "bytes are too many"),
    ] {
        w.file(name, bytes);
        let error = w.fails("Read", json!({"file_path": name})).await;
        assert!(error.contains(says), "{name}: {error}");
        assert!(error.contains("pdftotext") || error.contains("take a part out"), "{error}");
    }
}

#[tokio::test]
async fn the_word_for_encryption_encrypts_nothing() {
    let w = World::new();
    let with = |entry: &str| pdf(1).replace("trailer<<", &format!("trailer<<{entry}"));
    for entry in ["/Title(see /Encrypt here)", "/EncryptMetadata true", "/Encrypt 9"] {
        w.file("a.pdf", with(entry));
        assert_eq!(w.ok("Read", json!({"file_path": "a.pdf"})).await, "<block>", "{entry}");
    }
    for entry in ["/Encrypt 9 0 R", "/Encrypt\n12\n0\nR", "/Encrypt<</V 1>>"] {
        w.file("a.pdf", with(entry));
        let error = w.fails("Read", json!({"file_path": "a.pdf"})).await;
        assert!(error.contains("is encrypted"), "{entry}: {error}");
    }
}

#[tokio::test]
async fn text_that_begins_like_a_picture_or_a_document_is_shown() {
    let w = World::new();
    let long = format!("%PDF-1.4 é\n{}", "é\n".repeat(200_000));
    for (name, body) in [
        ("a.c", "%PDF-1.4\nint main;\n"),
        ("b.txt", "GIF89a is a format;\n"),
        ("c.txt", "RIFF1234WEBP is one too\n"),
        ("d.txt", &long),
    ] {
        w.file(name, body);
        let shown = w.ok("Read", json!({"file_path": name, "limit": 3})).await;
        let first = body.lines().next().unwrap();
        assert!(shown.starts_with(&format!("     1\t{first}\n")), "{name}: {shown}");
    }
    let shown = w.ok("Read", json!({"file_path": "d.txt", "offset": 200_001})).await;
    assert_eq!(shown, "200001\té\n");
}
