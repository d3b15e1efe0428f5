//! The durable source of the metadata: one JSON file, replaced atomically at each change.
//!
//! Owned by the control thread. Knows no logs and no clients. A change is on stable storage when
//! the method that made it returns; a crash leaves the file as it was before or after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringlog_engine::types::{LeaderEpoch, ProducerId};
use ringlog_replication::types::{ParseTopicIdError, TopicId};
use serde::{Deserialize, Serialize};

use super::image::{MetadataImage, PartitionImage, TopicImage};

const FILE_NAME: &str = "ringlog-metadata.json";
const VERSION: u32 = 1;

/// Producer ids given out with one durable write.
const PRODUCER_ID_BLOCK: i64 = 1000;
/// Ids from here on were made up by a client: they use up nothing, and those below never run out.
const PRODUCER_IDS_END: i64 = 1 << 62;

/// The stored metadata and its current image.
#[derive(Debug)]
pub struct Catalog {
    path: PathBuf,
    next_producer_id: i64,
    /// Topics that are gone for clients while their directories may still be there.
    deleting: BTreeSet<TopicId>,
    image: Arc<MetadataImage>,
}

/// Why the metadata cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The file system failed.
    #[error("{}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The metadata file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not what this version writes.
    #[error("{} is not readable as ringlog's metadata: {problem}; restore it from a copy, or move it away to have the topics' directories adopted anew", path.display())]
    Format {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::StorageFull {
        "; free some space"
    } else {
        ""
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    next_producer_id: i64,
    broker_configs: BTreeMap<String, String>,
    deleting: Vec<String>,
    topics: BTreeMap<String, StoredTopic>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTopic {
    id: String,
    leader_epochs: Vec<i32>,
    configs: BTreeMap<String, String>,
}

impl Catalog {
    /// Reads the metadata in `dir`, or starts empty where there is none.
    ///
    /// # Errors
    ///
    /// An unreadable or malformed file; it is left as it is.
    pub fn open(dir: &Path, cluster_id: String, node_id: i32) -> Result<Self, CatalogError> {
        let path = dir.join(FILE_NAME);
        let mut image = MetadataImage::new(cluster_id, node_id);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let deleting = BTreeSet::new();
                return Ok(Self {
                    path,
                    next_producer_id: 0,
                    deleting,
                    image: Arc::new(image),
                });
            }
            Err(source) => return Err(CatalogError::Io { path, source }),
        };
        let format = |problem: String| CatalogError::Format {
            path: path.clone(),
            problem,
        };
        let stored: Stored = serde_json::from_str(&text).map_err(|error| format(error.to_string()))?;
        if stored.version != VERSION {
            return Err(format(format!(
                "version {}, this program knows {VERSION}",
                stored.version
            )));
        }
        image.broker_configs = stored.broker_configs;
        let parse = |id: &str| {
            id.parse()
                .map_err(|error: ParseTopicIdError| format(error.to_string()))
        };
        let deleting = stored
            .deleting
            .iter()
            .map(|id| parse(id))
            .collect::<Result<_, _>>()?;
        for (name, topic) in stored.topics {
            let id = parse(&topic.id)?;
            if topic.leader_epochs.is_empty() {
                return Err(format(format!("topic {name} has no partitions")));
            }
            let epoch = |epoch| PartitionImage {
                leader_epoch: LeaderEpoch(epoch),
            };
            image.put_topic(TopicImage {
                name: name.into(),
                id,
                partitions: topic.leader_epochs.into_iter().map(epoch).collect(),
                configs: topic.configs,
            });
        }
        Ok(Self {
            path,
            next_producer_id: stored.next_producer_id.clamp(0, PRODUCER_IDS_END),
            deleting,
            image: Arc::new(image),
        })
    }

    /// The metadata as last stored.
    #[must_use]
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    /// Changes the metadata; the new image is current, and durable, on return.
    ///
    /// # Errors
    ///
    /// The file system's; the image is unchanged then.
    pub fn update(&mut self, change: impl FnOnce(&mut MetadataImage)) -> Result<(), CatalogError> {
        let mut image = MetadataImage::clone(&self.image);
        change(&mut image);
        self.store(&image, self.next_producer_id, &self.deleting)?;
        self.image = Arc::new(image);
        Ok(())
    }

    /// Removes a topic; until [`Self::finish_deletion`] its directories are remembered as garbage.
    ///
    /// # Errors
    ///
    /// The file system's; the topic is still there then.
    pub fn begin_deletion(&mut self, topic: &TopicImage) -> Result<(), CatalogError> {
        let mut deleting = self.deleting.clone();
        deleting.insert(topic.id);
        let mut image = MetadataImage::clone(&self.image);
        image.remove_topic(&topic.name);
        self.store(&image, self.next_producer_id, &deleting)?;
        self.image = Arc::new(image);
        self.deleting = deleting;
        Ok(())
    }

    /// Whether directories of this topic are garbage.
    #[must_use]
    pub fn is_deleting(&self, id: TopicId) -> bool {
        self.deleting.contains(&id)
    }

    /// No directory of these topics is left under a partition's name. Stored with the next change.
    pub fn finish_deletion(&mut self, id: TopicId) {
        self.deleting.remove(&id);
    }

    /// A block of producer ids that were never given out before.
    ///
    /// # Errors
    ///
    /// The file system's; no ids are given out then.
    pub fn allocate_producer_ids(&mut self) -> Result<Range<i64>, CatalogError> {
        let first = self.next_producer_id;
        let end = first + PRODUCER_ID_BLOCK;
        self.store(&self.image, end, &self.deleting)?;
        self.next_producer_id = end;
        Ok(first..end)
    }

    /// Gives out no producer id up to `last` from now on, since logs remember it.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn begin_producer_ids_after(&mut self, last: ProducerId) -> Result<(), CatalogError> {
        if last.0 >= PRODUCER_IDS_END {
            return Ok(());
        }
        let next = last.0 + 1;
        if next > self.next_producer_id {
            self.store(&self.image, next, &self.deleting)?;
            self.next_producer_id = next;
        }
        Ok(())
    }

    fn store(
        &self,
        image: &MetadataImage,
        next_producer_id: i64,
        deleting: &BTreeSet<TopicId>,
    ) -> Result<(), CatalogError> {
        let topic = |topic: &Arc<TopicImage>| StoredTopic {
            id: topic.id.to_string(),
            leader_epochs: topic
                .partitions
                .iter()
                .map(|partition| partition.leader_epoch.0)
                .collect(),
            configs: topic.configs.clone(),
        };
        let stored = Stored {
            version: VERSION,
            next_producer_id,
            broker_configs: image.broker_configs.clone(),
            deleting: deleting.iter().map(ToString::to_string).collect(),
            topics: image.topics().map(|t| (t.name.to_string(), topic(t))).collect(),
        };
        let text = serde_json::to_vec_pretty(&stored).expect("strings and numbers only");
        replace_file(&self.path, &text).map_err(|source| CatalogError::Io {
            path: self.path.clone(),
            source,
        })
    }

    /// An id for a new topic that no topic has.
    ///
    /// # Errors
    ///
    /// When the system gives no random bytes.
    pub fn new_topic_id(&self) -> Result<TopicId, CatalogError> {
        loop {
            let id = TopicId(random_bytes().map_err(|source| CatalogError::Io {
                path: PathBuf::from(RANDOM_SOURCE),
                source,
            })?);
            // Ids that begin with a dash would be read as flags by command lines; Kafka avoids them too.
            if id != TopicId::ZERO && self.image.topic_by_id(id).is_none() && !id.to_string().starts_with('-')
            {
                return Ok(id);
            }
        }
    }
}

const RANDOM_SOURCE: &str = "/dev/urandom";

/// 16 random bytes from the system.
pub(crate) fn random_bytes() -> io::Result<[u8; 16]> {
    use std::io::Read;
    let mut bytes = [0; 16];
    File::open(RANDOM_SOURCE)?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Replaces `path`, atomically and durably.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // As the engine names its own, which a log that opens clears away.
    let mut staged = path.as_os_str().to_owned();
    staged.push(".tmp");
    let staged = PathBuf::from(staged);
    let mut file = File::create(&staged)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&staged, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, id: TopicId) -> TopicImage {
        TopicImage {
            name: name.into(),
            id,
            partitions: vec![
                PartitionImage {
                    leader_epoch: LeaderEpoch(3)
                };
                2
            ],
            configs: BTreeMap::from([("flush.policy".to_owned(), "os".to_owned())]),
        }
    }

    #[test]
    fn topics_and_producer_ids_survive_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Catalog::open(dir.path(), "cluster".into(), 1).unwrap();
        let mut catalog = open();
        let id = catalog.new_topic_id().unwrap();
        catalog
            .update(|image| image.put_topic(topic("events", id)))
            .unwrap();
        let first = catalog.allocate_producer_ids().unwrap();
        drop(catalog);

        let mut reopened = open();
        assert_eq!(**reopened.image().topic("events").unwrap(), topic("events", id));
        assert_eq!(reopened.image().topic_by_id(id).unwrap().name.as_ref(), "events");
        assert_eq!(reopened.allocate_producer_ids().unwrap().start, first.end);
        reopened.begin_producer_ids_after(ProducerId(7)).unwrap();
        reopened.begin_producer_ids_after(ProducerId(70_000)).unwrap();
        drop(reopened);
        assert_eq!(open().allocate_producer_ids().unwrap().start, 70_001);
        // A client may write any, and no broker will have given out so many.
        for made_up in [i64::MAX, PRODUCER_IDS_END] {
            open().begin_producer_ids_after(ProducerId(made_up)).unwrap();
        }
        let later = open().allocate_producer_ids().unwrap();
        assert!(later.start < 100_000 && !later.is_empty(), "{later:?}");
    }

    #[test]
    fn a_garbled_file_is_refused_by_name_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        fs::write(&path, "{\"version\": 1").unwrap();
        let error = Catalog::open(dir.path(), String::new(), 1).unwrap_err();
        assert!(error.to_string().contains(FILE_NAME), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"{\"version\": 1");
    }
}
