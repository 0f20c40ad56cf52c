//! How often files and folders are opened, as the kernel reports it (inotify). It replaces measured time in tests of what
//! must not be looked at.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;

/// Counts how often the watched folders are opened, whoever opens them. Opening a folder to list it counts; looking up a
/// name in it, or opening a file in it, does not.
#[derive(Debug)]
pub struct FolderOpens(OwnedFd);

impl FolderOpens {
    /// Starts to watch these folders. Folders below them are not watched.
    ///
    /// # Errors
    ///
    /// Returns the system's error if a folder cannot be watched.
    pub fn watch<P: AsRef<Path>>(folders: impl IntoIterator<Item = P>) -> io::Result<Self> {
        let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        for folder in folders {
            inotify::add_watch(&fd, folder.as_ref(), inotify::WatchFlags::OPEN)?;
        }
        Ok(Self(fd))
    }

    /// The number of times that one of the folders was opened since the last call, or since watching began.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        while let Ok(event) = events.next() {
            // An event about something in the folder holds its name.
            count += usize::from(event.file_name().is_none());
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_a_folder_is_counted_and_using_what_is_in_it_is_not() {
        let name = format!("open-agent-opens-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("below")).unwrap();
        std::fs::write(folder.join("file"), "").unwrap();
        let watched = FolderOpens::watch([&folder]).unwrap();
        assert_eq!(std::fs::read(folder.join("file")).unwrap(), b"");
        assert_eq!(std::fs::read_dir(folder.join("below")).unwrap().count(), 0);
        assert_eq!(watched.count(), 0);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        assert_eq!((watched.count(), watched.count()), (1, 0));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
