//! What the broker knows of topics, partitions and their configuration.
//!
//! Knows neither sockets nor logs. [`MetadataImage`] is the immutable view every shard reads;
//! [`Catalog`] is its durable source, changed by the control thread alone.

mod catalog;
mod image;

pub use catalog::{Catalog, CatalogError};
pub(crate) use catalog::{random_bytes, replace_file};
pub use image::{MetadataImage, PartitionImage, TopicImage};
