package contract

// PayloadServerPort is the port of the operator's payload server, which serves blobs of the payload to daemons, over
// HTTPS with mutual authentication. The path of a blob is PayloadServerPath, followed by the blob's hex SHA-256. The
// query parameter PayloadServerThen contains the digests of more blobs, separated by commas. The same answer contains
// these blobs after the first one. The answer ends before the first blob that the server doesn't have. A range request
// can ask for the end of an answer, from an offset on.
const (
	PayloadServerPort = 9183
	PayloadServerPath = "/blobs/"
	PayloadServerThen = "then"
)

// PayloadSourceConfigMap tells daemons the addresses of the payload servers. Its key PayloadSourceURLs has one URL per
// line, without a path, and its key PayloadSourceCA has the servers' certificates as PEM.
const (
	PayloadSourceConfigMap = "windows-payload-source"
	PayloadSourceURLs      = "urls"
	PayloadSourceCA        = "ca.crt"
)
