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
//	DATA/member/etcdinit-seed.json                          the record, 0600
//	DATA/member/etcdinit-pending-<cluster ID>               the mark "not released yet"
//
// Directories are 0700. There is no *.snap file: etcd writes the first one after
// thousands of entries. With a separate wal-dir the segment lies there, and
// member/wal does not exist.
//
// The record says how the directory was seeded: name, URLs, member, cluster and disk
// ID, the roster, the token and the plan's digest, in JSON with a version. It stays
// for the life of the directory. The mark is there while the seed is pending, that is
// committed but not released; the first edition's was etcdinit-pending, without a
// record.
//
// # IDs
//
// A member's ID is the first 8 bytes of the SHA-1 of its peer URLs, sorted and
// joined without a separator, and the token. It is computed by etcd's own membership
// package. The URLs are hashed as text, so New refuses every spelling but one: lower
// case, no trailing dot, an explicit port, brackets around IPv6.
//
// The cluster's ID is either computed by the same package from all member IDs in
// ascending order (New), or it is that of a birth (Plan.Born). etcd keeps the ID in
// the log's metadata only, never computes it again, and refuses messages of another
// one. So the ID of a birth names the disks that are born together: it is hashed from
// the plan's digest and each member's disk ID. A disk that lost its data gets
// another disk ID, hence another cluster ID, and no etcd takes it for the old member.
//
// # The disk ID
//
// A disk ID is 128 random bits. Prepare writes it durably into an empty directory
// before any other member hears of it:
//
//	DATA/.etcdinit-disk/<disk ID>/disk    {"version":1,"diskID":…,"walDir":…}
//
// It appears in one rename of a staged directory onto .etcdinit-disk, which fails on
// every file system where a directory is there that is not empty: two runs never make
// two IDs. A separate wal-dir gets the same directory with the same ID. An ID that is
// on one side only, or differs, is no ID (State.Leftovers): Prepare replaces it by a
// new one on both sides, since it may have been said to others, and must not be bound
// on one side alone. A prepared directory is still Empty.
//
// A disk ID is bound at most once, by construction and without a lock: the commit
// moves the seed through the directory that bears the ID.
//
//	bind      rename  DATA/.etcdinit-seed-…/member          DATA/.etcdinit-disk/<disk ID>/member
//	settle    rename  DATA/.etcdinit-disk/<disk ID>/member  DATA/member
//	use up    rename  DATA/.etcdinit-disk/<disk ID>         DATA/.etcdinit-seed-…/used-<disk ID>
//
// The first rename fails if the ID is bound (its target is not empty) or used up (it
// has no parent). The second one never replaces anything. After the third one, which
// is durable before Apply returns, moving member/ aside leaves a directory without an
// ID. A run that slept in between names an ID that is not there any more.
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
// directory, binds and settles member/, and syncs the data directory. That is the
// commit: before it nothing is there, after it everything. Then the disk ID is used
// up, and only then Apply returns nil, so only then "committed" may be said.
//
// A seed that is not a birth, and one for which no disk ID was prepared, is renamed
// to its place directly; a disk ID that is there is used up before.
//
// With a separate wal-dir no single rename can commit both. The log is staged in
// WAL/.etcdinit-seed-…/wal/. Both are bound first, DATA before WAL, so that one of
// two runs loses before anything settles. Then member/ settles, with a file
// etcdinit-no-wal-yet in it, and the segment last, since a log is what makes an
// etcd believe. The rename of the segment is the commit. Then the disk IDs are used
// up, the one in the wal-dir first, and etcdinit-no-wal-yet goes.
//
// Where a rename or a sync fails before the commit is durable, the renames are undone,
// the last one first. What was staged is held open, and nothing else is taken back. A
// seed that has settled goes back through its disk ID: if that is used up, another
// run has found the seed and may have said so, and it stays.
//
// # What a crash leaves
//
//	killed in Prepare           on disk                               Inspect     the next run
//	before the mark is made     an empty staging directory            Empty       removes it, prepares
//	before the rename           a marked staging directory            Empty       removes it, prepares
//	between wal-dir and         the ID in the wal-dir only            Empty       makes a new ID on both sides
//	data-dir
//	after the last rename       the ID                                Empty, ID   keeps it
//
//	killed in Apply             on disk                               Inspect     the next run
//	before the mark is made     an empty staging directory, the ID    Empty, ID   removes it, seeds
//	before member/ is bound     a marked staging directory, the ID    Empty, ID   removes it, seeds
//	before the log is bound     member/ in the ID's directory         Unfinished  takes it back, has the ID, seeds
//	before member/ settles      both in the IDs' directories          Unfinished  completes it
//	before the log settles      member/ with etcdinit-no-wal-yet,     Unfinished  completes it
//	                            the log in the ID's directory
//	the same, without an ID     member/ with etcdinit-no-wal-yet,     Empty       takes it back, seeds
//	                            an untouched db, and no log
//	after the commit            the seed, and an ID, a staging        Valid       removes the rest
//	                            directory or etcdinit-no-wal-yet
//
//	killed in Withdraw          on disk                               Inspect     the next run
//	before the log moves        the seed with etcdinit-no-wal-yet     Valid       removes that, withdraws
//	before member/ moves        member/ with etcdinit-no-wal-yet,     Empty       takes it back, prepares
//	                            an untouched db, and no log
//	after that                  etcdinit-withdrawn-<cluster ID>       Empty       prepares
//
//	killed in Release           on disk                               Inspect     the next run
//	before the mark is removed  the seed with its mark                Valid       decides anew
//	after that                  the seed without                      Valid       is released; Confirm syncs it
//
// Without a separate wal-dir the rows about the log fall away: what is bound is whole.
// Nothing that is Unfinished has been said to anybody. Clean completes it where it is a
// whole pristine seed whose record names the ID that it is bound to, and otherwise takes
// it back by one rename into a staging directory; the disk has its ID again, and others
// that have committed to it need not be given up.
//
// Inspect lists what the next run may remove as State.Leftovers. A staging
// directory is ours by its name and its mark (or its name, while it is empty). A
// database without a log is ours only while the mark is beside it, consistent_index
// is N, no key and no removed member is in it and nobody else's file is around;
// every other database without a log is Broken, since its log held a vote. A caller
// that keeps a Valid directory must call Clean before etcd starts, so that neither
// a mark outlives the log nor a disk ID the seed.
//
// After a power cut the same holds: whatever is not synced may be gone or there. A run
// that finds what another one has made calls Confirm before it says so.
//
// # Release and withdrawal
//
// Between a look and the act on it a directory may be replaced. Look tells what a
// directory is as a Sight, which is compared with ==. Release opens member/, compares
// its identity with the sight and its record with the state, removes the mark
// through that handle, and asks whether the path still leads there. Withdraw moves a
// pending seed that no etcd has run on to DATA/etcdinit-withdrawn-<cluster ID>/ (and
// the segment of a separate wal-dir to the same name there), and moves back what
// turns out to be another one. Both names are ignored by Inspect (State.Foreign).
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
// Identity comes from the log and the database alone. Our own files are hints: marks
// may be empty, and a record that cannot be read is a State.RecordProblem. But a pending
// seed is Broken without its record, since nobody can tell whom it waits for; and so
// is a directory whose mark or record names another cluster than the log, or whose
// record names another member: they do not belong together. The cluster ID of a birth
// determines the disk, so this also compares the disks of data-dir and wal-dir.
package seed
