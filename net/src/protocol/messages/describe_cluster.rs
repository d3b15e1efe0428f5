//! DescribeCluster (key 60): brokers and controller (KIP-700).
//!
//! Version 1 can ask for the controllers instead.

messages! {
    /// What to tell beside the brokers.
    pub struct DescribeClusterRequest for DescribeCluster {
        /// Whether to tell what the client may do with the cluster.
        include_cluster_authorized_operations: bool, [0+];
        /// 1 brokers, 2 controllers.
        endpoint_type: i8, [1+] = 1;
    }

    /// The brokers of the cluster.
    pub struct DescribeClusterResponse<'a> for DescribeCluster {
        /// How long the client should hold back, because of a quota.
        throttle_time_ms: i32, [0+];
        /// 0 or an error, see `ErrorCode`.
        error_code: i16, [0+];
        /// The error in words.
        error_message: Option<&'a str>, [0+];
        /// 1 brokers, 2 controllers.
        endpoint_type: i8, [1+] = 1;
        /// Id of the cluster.
        cluster_id: &'a str, [0+];
        /// Id of the controller, -1 if not known.
        controller_id: i32, [0+] = -1;
        /// Each broker.
        brokers: Vec<DescribeClusterBroker<'a>>, [0+];
        /// Bits of the allowed operations, the least number if not told.
        cluster_authorized_operations: i32, [0+] = i32::MIN;
    }

    /// A live broker.
    pub struct DescribeClusterBroker<'a> {
        /// Id of the broker.
        broker_id: i32, [0+];
        /// Name or address.
        host: &'a str, [0+];
        /// TCP port.
        port: i32, [0+];
        /// Where it stands, if that is known.
        rack: Option<&'a str>, [0+];
    }
}
