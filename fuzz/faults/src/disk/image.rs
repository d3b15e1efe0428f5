//! The bytes of a disk, in chunks that copies share until one of them writes.
//!
//! So a copy costs one pointer for each 64 KiB, and a disk of which little is used takes little
//! memory. Knows no file and no device. Tested below.

use std::sync::Arc;

const CHUNK_BYTES: usize = 64 * 1024;

/// A disk's bytes; all zero at first.
#[derive(Clone, Debug)]
pub struct Image {
    chunks: Vec<Arc<Vec<u8>>>,
}

impl Image {
    /// A disk of at least `len_bytes`, a multiple of 64 KiB.
    #[must_use]
    pub fn new(len_bytes: usize) -> Self {
        let zeros = Arc::new(vec![0; CHUNK_BYTES]);
        Self {
            chunks: vec![zeros; len_bytes.div_ceil(CHUNK_BYTES)],
        }
    }

    /// Its size.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    /// Fills `buffer` with what lies at `position`.
    ///
    /// # Panics
    ///
    /// Beyond the end, as does [`write`](Self::write).
    pub fn read(&self, position: usize, mut buffer: &mut [u8]) {
        let (mut index, mut start) = (position / CHUNK_BYTES, position % CHUNK_BYTES);
        while !buffer.is_empty() {
            let count = buffer.len().min(CHUNK_BYTES - start);
            let (head, rest) = buffer.split_at_mut(count);
            head.copy_from_slice(&self.chunks[index][start..start + count]);
            (buffer, index, start) = (rest, index + 1, 0);
        }
    }

    /// Puts `data` at `position`.
    pub fn write(&mut self, position: usize, mut data: &[u8]) {
        let (mut index, mut start) = (position / CHUNK_BYTES, position % CHUNK_BYTES);
        while !data.is_empty() {
            let (head, rest) = data.split_at(data.len().min(CHUNK_BYTES - start));
            Arc::make_mut(&mut self.chunks[index])[start..start + head.len()].copy_from_slice(head);
            (data, index, start) = (rest, index + 1, 0);
        }
    }

    /// The chunks in order, for a file that is to hold the disk.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| chunk.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(image: &Image, position: usize, len_bytes: usize) -> Vec<u8> {
        let mut buffer = vec![1; len_bytes];
        image.read(position, &mut buffer);
        buffer
    }

    #[test]
    fn a_write_over_the_border_of_chunks_is_read_back() {
        let mut image = Image::new(3 * CHUNK_BYTES);
        let data: Vec<u8> = (0..2 * CHUNK_BYTES).map(|i| (i % 251) as u8).collect();
        image.write(CHUNK_BYTES / 2, &data);
        assert_eq!(read(&image, CHUNK_BYTES / 2, data.len()), data);
        assert_eq!(read(&image, 0, CHUNK_BYTES / 2), vec![0; CHUNK_BYTES / 2]);
    }

    #[test]
    fn a_copy_does_not_see_later_writes() {
        let mut image = Image::new(CHUNK_BYTES);
        let copy = image.clone();
        image.write(5, b"later");
        assert_eq!(read(&copy, 5, 5), vec![0; 5]);
        assert_eq!(read(&image, 5, 5), b"later");
    }
}
