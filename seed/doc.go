// Package seed makes a member's data directory before its first start, and tells
// what an existing one holds.
//
// A stock etcd that finds a write-ahead log believes that it has lived before: it
// takes its own ID, the cluster's ID and the members from its directory, and asks
// for no bootstrap flag. So the package writes what a stock etcd of a new static
// cluster has on its disk before its first vote, and nothing else. One directory
// serves etcd 3.4 to 3.7.
//
// # The files
//
//	DATA/member/wal/0000000000000000-0000000000000000.wal   64,000,000 bytes, 0600
//	DATA/member/snap/db                                     20 KiB, 0600
//	DATA/member/etcdinit-pending                            where Spec.Pending asks for it
//
// Directories are 0700. There is no *.snap file: etcd writes the first one after
// thousands of entries. With a wal-dir of its own the segment lies there, and
// member/wal does not exist.
//
// # IDs
//
// A member's ID is the first 8 bytes of the SHA-1 of its peer URLs, sorted and
// joined without a separator, and the token; the cluster's ID that of all member
// IDs in ascending order. Both are computed by etcd's own membership package. The
// URLs are hashed as text, so New refuses every spelling but one: lower case, no
// trailing dot, an explicit port, brackets around IPv6.
//
// # The log
//
// The records, each framed by an 8-byte little-endian length whose top byte tells
// the padding, with a rolling CRC-32C over their data:
//
//	crc        0
//	metadata   {member ID, cluster ID}
//	snapshot   {index 0, term 0}
//	entry 1…N  term 1, ConfChange AddNode or AddLearnerNode, ascending by member ID,
//	           with {"id","peerURLs","isLearner","name"} as JSON; no client URLs
//	state      {term 1, vote 0, commit N}
//	zeros      to the preallocated length
//
// They are written by etcd's own wal package, and are byte for byte those of
// etcd 3.7.
//
// # The database
//
// A bbolt file with etcd's ten buckets. members holds one entry a member, as the
// stock bootstrap would write it; only the member's own has client URLs, which
// the handoff reads there (to etcd, a member that has client URLs has run). meta
// holds consistent_index = N, term = 1 and confState, as after the log's entries:
// a filled members bucket and consistent_index belong together, or etcd 3.6
// applies the entries a second time. There is no storageVersion and no
// clusterVersion. Log and bucket come from one slice of members.
//
// # Staging, and the commit point
//
// Apply looks, locks the data directory (flock on the directory itself: no lock
// file), removes its own leftovers, looks again, checks the free space, and builds
// in
//
//	DATA/.etcdinit-seed-<16 hexadecimal digits>/
//	    etcdinit-staging      the mark; durable before anything else is made
//	    member/…
//
// inside the data directory, which may be a mount point. Then it gives every file
// its mode and owner, syncs files, directories from the inside out and the staging
// directory, renames member/ to its place, and syncs the data directory. That
// rename never replaces anything. It is the commit: before it nothing is there,
// after it everything. Where the last sync fails, the rename is taken back.
//
// With a separate wal-dir no single rename can commit both. The log is staged in
// WAL/.etcdinit-seed-…/wal/; member/ is renamed first, with a file
// etcdinit-no-wal-yet in it, and the segment last, since a log is what makes an
// etcd believe. The rename of the segment is the commit. Then the file goes.
//
// # What a crash leaves
//
//	killed                      on disk                               Inspect     the next run
//	before the mark is made     an empty staging directory            Empty       removes it, seeds
//	before the first rename     a marked staging directory            Empty       removes it, seeds
//	between the two renames     member/ with etcdinit-no-wal-yet,     Empty       takes it back, seeds
//	                            an untouched db, and no log
//	after the commit            the seed, a staging directory or      Valid       removes the rest
//	                            etcdinit-no-wal-yet beside it
//
// Inspect lists what the next run may remove as State.Leftovers. A staging
// directory is ours by its name and its mark (or its name, while it is empty). A
// database without a log is ours only while the mark is beside it, consistent_index
// is N, no key and no removed member is in it and nobody else's file is around;
// every other database without a log is Broken, since its log held a vote. A caller
// that keeps a Valid directory must call Clean before etcd starts, so that the mark
// does not outlive the log.
//
// After a power cut the same holds: whatever is not synced may be gone or there.
//
// # Reading
//
// Inspect opens nothing for writing. It takes etcd's own lock on the database,
// shared, and gives up after half a second (Busy). It reads the database page by
// page with its own reader, since bbolt maps the file and follows damaged page
// numbers into faults and endless recursion; and of the log each segment's first
// two records, and the first segment's first megabyte. A torn last record is no
// damage: etcd cuts it off itself. Verify with deep reads every record and page,
// asks bbolt's own check as well, and holds the log's last index against
// consistent_index and a purged log's snapshot records against the *.snap files.
//
// Identity comes from the log and the database alone. Our own files are hints: the
// pending file and the marks may be empty or gone.
package seed
