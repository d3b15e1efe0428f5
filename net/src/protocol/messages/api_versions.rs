//! ApiVersions (key 18): the first request on a connection; tells which versions may follow.
//!
//! Version 3 brought the name of the client (KIP-511) and features (KIP-584).

messages! {
    /// Names the client.
    pub struct ApiVersionsRequest<'a> for ApiVersions {
        /// Name of the client library.
        client_software_name: &'a str, [3+];
        /// Version of the client library.
        client_software_version: &'a str, [3+];
    }

    /// The versions and features of the broker.
    pub struct ApiVersionsResponse<'a> for ApiVersions {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// Each API.
        api_keys: Vec<ApiVersion>, [0+];
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [1+];
        /// Features of the broker.
        supported_features: Vec<SupportedFeatureKey<'a>>, [3+] tag 0;
        /// Version of the agreement, -1 if not known.
        finalized_features_epoch: i64, [3+] tag 1 = -1;
        /// Features agreed on.
        finalized_features: Vec<FinalizedFeatureKey<'a>>, [3+] tag 2;
        /// Whether it could leave ZooKeeper; never told.
        zk_migration_ready: bool, [3+] tag 3;
    }

    /// The versions of one API.
    pub struct ApiVersion {
        /// Which API.
        api_key: i16, [0+];
        /// First version.
        min_version: i16, [0+];
        /// Last version.
        max_version: i16, [0+];
    }

    /// The versions that the broker has of a feature.
    pub struct SupportedFeatureKey<'a> {
        /// Its name.
        name: &'a str, [3+];
        /// First version.
        min_version: i16, [3+];
        /// Last version.
        max_version: i16, [3+];
    }

    /// The versions of a feature that the cluster has agreed on.
    pub struct FinalizedFeatureKey<'a> {
        /// Its name.
        name: &'a str, [3+];
        /// Last version.
        max_version_level: i16, [3+];
        /// First version.
        min_version_level: i16, [3+];
    }
}
