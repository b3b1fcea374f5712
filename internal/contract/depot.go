package contract

// DepotPort is where the operator's depot hands out blobs of the payload to daemons, over HTTPS
// with both sides authenticated. DepotPath and the hex SHA-256 of a blob make its path; range
// requests work.
const (
	DepotPort = 9183
	DepotPath = "/blobs/"
)

// PayloadSourceConfigMap tells daemons where depots are: under PayloadSourceURLs one URL a line,
// without a path, and under PayloadSourceCA the PEM certificates that they show.
const (
	PayloadSourceConfigMap = "windows-payload-source"
	PayloadSourceURLs      = "urls"
	PayloadSourceCA        = "ca.crt"
)
