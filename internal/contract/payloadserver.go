package contract

// PayloadServerPort is the port of the operator's payload server, which serves blobs of the payload to daemons,
// over HTTPS with mutual authentication. PayloadServerPath and the hex SHA-256 of a blob are its path. The query
// parameter PayloadServerThen contains the digests of more blobs, separated by commas, which follow in the same answer.
// The answer ends before the first blob that the payload doesn't have. A range request may ask for the rest from an
// offset.
const (
	PayloadServerPort = 9183
	PayloadServerPath = "/blobs/"
	PayloadServerThen = "then"
)

// PayloadSourceConfigMap contains the addresses of payload servers for daemons: under PayloadSourceURLs one URL per
// line, without a path, and under PayloadSourceCA the servers' certificates as PEM.
const (
	PayloadSourceConfigMap = "windows-payload-source"
	PayloadSourceURLs      = "urls"
	PayloadSourceCA        = "ca.crt"
)
