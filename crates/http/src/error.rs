//! What can go wrong here. Texts never hold an address: proxies carry passwords in theirs.

use std::path::PathBuf;

/// A failure to set up a client or to decode a stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// A proxy's address is no address.
    #[error("the proxy address in {variable} is not usable")]
    Proxy {
        /// The environment variable that holds it.
        variable: &'static str,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// A proxy's address begins with a scheme that no proxy of ours has.
    #[error(
        "the proxy address in {variable} is not usable: it has to begin with http, https, socks4 or socks5"
    )]
    ProxyScheme {
        /// The environment variable that holds it.
        variable: &'static str,
    },
    /// A file of certificates cannot be read.
    #[error("cannot read the certificates in {} (from {variable})", path.display())]
    Certificates {
        /// The environment variable that names it.
        variable: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file of certificates holds none.
    #[error("there is no certificate in {} (from {variable})", path.display())]
    NoCertificate {
        /// The environment variable that names it.
        variable: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The client cannot be set up.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
    /// An event of a stream is too big.
    #[error("a server-sent event has more than {limit} bytes")]
    EventTooBig {
        /// The bound.
        limit: usize,
    },
}
