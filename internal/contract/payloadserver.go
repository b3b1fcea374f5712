package contract

// PayloadServerPort is where the operator's payload server hands out blobs of the payload to
// daemons, over HTTPS with both sides authenticated. PayloadServerPath and the hex SHA-256 of a
// blob make its path; range requests work.
const (
	PayloadServerPort = 9183
	PayloadServerPath = "/blobs/"
)

// PayloadSourceConfigMap tells daemons where payload servers are: under PayloadSourceURLs one URL a
// line, without a path, and under PayloadSourceCA the PEM certificates that they show.
const (
	PayloadSourceConfigMap = "windows-payload-source"
	PayloadSourceURLs      = "urls"
	PayloadSourceCA        = "ca.crt"
)
