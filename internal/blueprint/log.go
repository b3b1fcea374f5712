package blueprint

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Environment variables by which an administrator sets the logs of services.
const (
	variableLogSize  = "SERVICES_LOG_FILE_SIZE"
	variableLogAge   = "SERVICES_LOG_FILE_AGE"
	variableLogFlush = "SERVICES_LOG_FLUSH_INTERVAL"
)

// Limits of logs when nothing is set: a chatty kubelet writes some 50 MiB in a day, so a service keeps about a week and stays below 1 GiB.
const (
	defaultLogSize = "100Mi"
	defaultLogAge  = 7 * 24 * time.Hour
)

// Logging is how services' logs are rotated. Zero values switch one thing off: no rotation, no deletion of old files, no forced flush.
type Logging struct {
	// FileSize is the size in bytes at which a log is rotated, FileAge how long rotated logs are kept.
	FileSize resource.Quantity
	FileAge  time.Duration
	// FlushInterval is how often a log is flushed to disk.
	FlushInterval time.Duration
}

// DefaultLogging is used for what is not set.
func DefaultLogging() Logging {
	return Logging{FileSize: resource.MustParse(defaultLogSize), FileAge: defaultLogAge}
}

// LoggingFromEnvironment reads the settings; lookup is os.LookupEnv or like it. Each value that can't be used is named in the error, and its default
// is used instead.
func LoggingFromEnvironment(lookup func(string) (string, bool)) (Logging, error) {
	logging := DefaultLogging()
	var all []error
	if value, ok := lookup(variableLogSize); ok {
		size, err := resource.ParseQuantity(strings.TrimSpace(value))
		if err != nil || size.Sign() < 0 {
			all = append(all, fmt.Errorf("%s=%q is not a size such as 100Mi", variableLogSize, value))
		} else {
			logging.FileSize = size
		}
	}
	duration := func(name string, target *time.Duration) {
		value, ok := lookup(name)
		if !ok {
			return
		}
		d, err := time.ParseDuration(strings.TrimSpace(value))
		if err != nil || d < 0 {
			all = append(all, fmt.Errorf("%s=%q is not a duration such as 168h", name, value))
			return
		}
		*target = d
	}
	duration(variableLogAge, &logging.FileAge)
	duration(variableLogFlush, &logging.FlushInterval)
	return logging, errors.Join(all...)
}

// DaemonMaxSizeMB is the size limit of the daemon's own log in megabytes, rounded up; 0 means the daemon's default.
func (l Logging) DaemonMaxSizeMB() int {
	return int(l.FileSize.ScaledValue(resource.Mega))
}

// logged is the start of a command whose program can't rotate its log itself: kube-log-runner writes it.
func (l Logging) logged(file string) []string {
	words := []string{contract.PathKubeLogRunner, "-log-file=" + file}
	if l.FileSize.Sign() > 0 {
		words = append(words, "-log-file-size="+l.FileSize.String())
	}
	if l.FileAge > 0 {
		words = append(words, "-log-file-age="+l.FileAge.String())
	}
	if l.FlushInterval > 0 {
		words = append(words, "-flush-interval="+l.FlushInterval.String())
	}
	return words
}

// logFile is where a service logs.
func logFile(dir, name string) string { return contract.DirLog + `\` + dir + `\` + name + `.log` }

// verbosity is klog's level.
func verbosity(debug bool) string {
	if debug {
		return "4"
	}
	return "2"
}

// level is the word for it that others use.
func level(debug bool) string {
	if debug {
		return "debug"
	}
	return "info"
}
