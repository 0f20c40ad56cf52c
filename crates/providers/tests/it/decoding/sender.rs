//! A server that sends one answer exactly as it is told to: each piece as one chunk of the HTTP body, which the client
//! takes as one piece, so that a test decides where a body is cut.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Sends the same answer to each request until it is given another one.
pub(super) struct Sender {
    pub(super) url: String,
    answer: Arc<Mutex<Answer>>,
}

/// An answer: everything up to the empty line, the body in pieces, and whether the connection breaks after it.
#[derive(Clone, Default)]
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) breaks: bool,
}

impl Sender {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(Answer::default()));
        let shared = Arc::clone(&answer);
        // Ends with the test's process: it only waits.
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, answer) = (socket.unwrap(), Arc::clone(&shared));
                // Whoever goes away in the middle of an answer is none of the server's business.
                std::thread::spawn(move || serve(&socket, &answer).ok());
            }
        });
        Self { url, answer }
    }

    pub(super) fn will_send(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

fn serve(socket: &TcpStream, answer: &Mutex<Answer>) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::new(socket);
    while take_request(&mut reader)? {
        let answer = answer.lock().unwrap().clone();
        let mut out = format!("{}transfer-encoding: chunked\r\n\r\n", answer.head).into_bytes();
        for piece in answer.pieces.iter().filter(|piece| !piece.is_empty()) {
            write!(out, "{:x}\r\n", piece.len())?;
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        if !answer.breaks {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        let mut socket = socket;
        socket.write_all(&out)?;
        if answer.breaks {
            return socket.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// Reads a whole request. `false` if the client has gone instead.
fn take_request(reader: &mut BufReader<&TcpStream>) -> std::io::Result<bool> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    Ok(true)
}
