//! AlterConfigs (key 33): replaces all configs of a resource.
//!
//! What the request does not name goes back to its default; IncrementalAlterConfigs does not.

messages! {
    /// The new configs of resources.
    pub struct AlterConfigsRequest<'a> for AlterConfigs {
        /// Each resource.
        resources: Vec<AlterConfigsResource<'a>>, [0+];
        /// Checks without changing anything.
        validate_only: bool, [0+];
    }

    /// One resource.
    pub struct AlterConfigsResource<'a> {
        /// 2 topic, 4 broker.
        resource_type: i8, [0+];
        /// Name of the topic, id of the broker.
        resource_name: &'a str, [0+];
        /// Each config.
        configs: Vec<AlterableConfig<'a>>, [0+];
    }

    /// One config.
    pub struct AlterableConfig<'a> {
        /// Its name.
        name: &'a str, [0+];
        /// Its value; null for none.
        value: Option<&'a str>, [0+];
    }

    /// What became of each resource.
    pub struct AlterConfigsResponse<'a> for AlterConfigs {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// Each topic.
        responses: Vec<AlterConfigsResourceResponse<'a>>, [0+];
    }

    /// What became of one resource.
    pub struct AlterConfigsResourceResponse<'a> {
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// The error in words.
        error_message: Option<&'a str>, [0+];
        /// 2 topic, 4 broker.
        resource_type: i8, [0+];
        /// Name of the topic, id of the broker.
        resource_name: &'a str, [0+];
    }
}
