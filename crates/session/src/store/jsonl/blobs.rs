//! Blobs as files: `<root>/<session>/blobs/<sha256>`. A file is written under another name and then renamed, so that a
//! crash leaves a whole blob or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use open_agent_model::{BlobId, BoxFuture, SessionId};

use super::{JsonlStore, blocking, io_error, private_file, private_folder};
use crate::store::blobs::{BlobStore, verified};
use crate::{Durability, StoreError};

impl BlobStore for JsonlStore {
    fn put<'a>(
        &'a self,
        session: &'a SessionId,
        id: &'a BlobId,
        bytes: &'a [u8],
        durability: Durability,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (folder, id, bytes) = (self.blobs(session), id.clone(), bytes.to_vec());
        Box::pin(blocking(move || put(&folder, &id, &bytes, durability)))
    }

    fn get<'a>(
        &'a self,
        session: &'a SessionId,
        id: &'a BlobId,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>> {
        let (path, id) = (self.blobs(session).join(id.as_str()), id.clone());
        Box::pin(blocking(move || Ok(read(&path)?.and_then(|bytes| verified(&id, bytes)))))
    }

    fn copy_all<'a>(
        &'a self,
        from: &'a SessionId,
        to: &'a SessionId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let (from, to) = (self.blobs(from), self.blobs(to));
        Box::pin(blocking(move || copy_all(&from, &to)))
    }
}

impl JsonlStore {
    fn blobs(&self, session: &SessionId) -> PathBuf {
        self.root.join(session.as_str()).join("blobs")
    }
}

fn put(folder: &Path, id: &BlobId, bytes: &[u8], durability: Durability) -> Result<(), StoreError> {
    let path = folder.join(id.as_str());
    // One that is damaged is replaced.
    if read(&path)?.is_none_or(|stored| stored != bytes) {
        private_folder(folder)?;
        let part = folder.join(format!(".{id}.{}", std::process::id()));
        let mut file = private_file(&part, OpenOptions::new().write(true).truncate(true))?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&part, &path));
        written.map_err(|error| {
            // What is left of it serves nobody; if it cannot be removed either, it does no harm.
            let _removed = fs::remove_file(&part);
            io_error("write", &path)(error)
        })?;
    }
    match durability {
        Durability::Written => Ok(()),
        Durability::Synced => {
            let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
            sync(&path).and_then(|()| sync(folder)).map_err(io_error("sync", &path))
        }
    }
}

/// Returns what is in the file; `None` if there is none, or something other than a file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => fs::read(path).map(Some).map_err(io_error("read", path)),
        // A named pipe would block, and a link leads out of the session.
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), StoreError> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("read", from)(error)),
    };
    private_folder(to)?;
    for entry in entries {
        let source = entry.map_err(io_error("read", from))?.path();
        let Some(name) = source.file_name().and_then(|name| name.to_str()) else { continue };
        if BlobId::new(name).is_err() {
            continue;
        }
        let target = to.join(name);
        // A link costs nothing, and blobs are replaced, never changed. Some file systems have none.
        match fs::hard_link(&source, &target) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => {
                fs::copy(&source, &target).map_err(io_error("copy", &source))?;
            }
        }
    }
    Ok(())
}
