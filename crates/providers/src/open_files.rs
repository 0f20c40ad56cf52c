//! Knows a request that failed because no socket could be opened.

use std::error::Error;

/// What to do if no socket could be opened because too many files are open: the server is not to blame then.
pub(crate) fn open_files_limit(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        // EMFILE and ENFILE: the numbers are the same on all Unix systems.
        match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            Some(24) => {
                return Some(
                    "this process has as many files and connections open as it may: raise the limit (`ulimit -n`), or run fewer agents at once",
                );
            }
            Some(23) => {
                return Some(
                    "this machine has as many files open as it can: end other programs, or raise its limit",
                );
            }
            _ => next = error.source(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug)]
    struct Connect(io::Error);

    impl std::fmt::Display for Connect {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("connect")
        }
    }

    impl Error for Connect {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn too_many_open_files_are_known_in_the_causes_and_nothing_else_is() {
        let limit = |code| open_files_limit(&Connect(io::Error::from_raw_os_error(code)));
        assert!(limit(24).unwrap().contains("ulimit -n"));
        assert!(limit(23).unwrap().contains("this machine"));
        assert_eq!(limit(111), None);
        assert_eq!(open_files_limit(&Connect(io::Error::other("24"))), None);
    }
}
