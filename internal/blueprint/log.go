package blueprint

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	variableLogSize  = "SERVICES_LOG_FILE_SIZE"
	variableLogAge   = "SERVICES_LOG_FILE_AGE"
	variableLogFlush = "SERVICES_LOG_FLUSH_INTERVAL"
)

// Default limits of logs. A kubelet that logs a lot writes about 50 MiB a day. With these limits, its logs cover about
// a week and use less than 600 MiB.
const (
	defaultLogSize  = "100Mi"
	defaultLogAge   = 7 * 24 * time.Hour
	defaultLogFiles = 5
)

// Logging configures log rotation. Zero disables a feature: no rotation, no deletion of old files, no forced flush.
type Logging struct {
	// FileSize is the maximum size of a log in bytes. A larger log is rotated. FileAge is the maximum age of rotated
	// logs, and Files is their maximum number.
	FileSize resource.Quantity
	FileAge  time.Duration
	Files    int
	// FlushInterval is the time between two flushes of a log to disk.
	FlushInterval time.Duration
}

// DefaultLogging returns the default settings.
func DefaultLogging() Logging {
	return Logging{FileSize: resource.MustParse(defaultLogSize), FileAge: defaultLogAge, Files: defaultLogFiles}
}

// The method with adds a user's settings to a copy of l. It skips unset settings, and reports invalid ones as problems.
func (l Logging) with(spec v1alpha1.LoggingSpec) (Logging, []*contract.Problem) {
	var rejected []*contract.Problem
	complain := func(field, format string, args ...any) {
		rejected = append(rejected, contract.NewProblem(contract.ReasonSettingInvalid,
			"spec.logging.%s of the WindowsMachineConfig "+format, append([]any{field}, args...)...))
	}
	if size := spec.MaxSize; size != nil {
		if size.Sign() < 0 || size.Value() > maxLogSize {
			complain("maxSize", "is %s, which is not a size from 0 to %s", size,
				resource.NewQuantity(maxLogSize, resource.BinarySI))
		} else {
			l.FileSize = *size
		}
	}
	duration := func(field string, d *metav1.Duration, target *time.Duration) {
		switch {
		case d == nil:
		case d.Duration < 0:
			complain(field, "is negative")
		default:
			*target = d.Duration
		}
	}
	duration("maxAge", spec.MaxAge, &l.FileAge)
	duration("flushInterval", spec.FlushInterval, &l.FlushInterval)
	if files := spec.MaxFiles; files != nil {
		if *files < 0 {
			complain("maxFiles", "is negative")
		} else {
			l.Files = int(*files)
		}
	}
	return l, rejected
}

// maxLogSize is the largest useful size limit of a log.
const maxLogSize = 1 << 40

// log returns the limits of a service's log. If the parameter rotates is false, the daemon rotates the log.
func (l Logging) log(file string, rotates bool) *contract.Log {
	return &contract.Log{Path: file, Rotates: rotates, MaxSize: l.FileSize.Value(),
		MaxAgeSeconds: int64(l.FileAge / time.Second), MaxFiles: l.Files}
}

func (l Logging) daemon(debug bool) *contract.DaemonSettings {
	return &contract.DaemonSettings{Debug: debug, Log: l.log("", false)}
}

// LoggingFromEnvironment reads the log settings in the operator's environment. lookup is os.LookupEnv or a substitute.
// In place of an invalid value, it uses the default, and returns an error that contains the invalid value.
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

// Runner is for a service that can't write a log file itself, and so runs under kube-log-runner. Runner returns the
// service's log, and the first words of its command. kube-log-runner writes the log file, and the daemon rotates it.
// Don't let kube-log-runner rotate the file: on Windows, it can't rename a file that another program reads, and after
// this failure it stops logging.
func (l Logging) Runner(service string) (*contract.Log, []string) {
	file := contract.LogFile(service)
	words := []string{contract.PathKubeLogRunner, "-log-file=" + file}
	if l.FlushInterval > 0 {
		words = append(words, "-flush-interval="+l.FlushInterval.String())
	}
	return l.log(file, false), words
}

// verbosity returns the value of klog's flag -v.
func verbosity(debug bool) string {
	if debug {
		return "4"
	}
	return "2"
}

// level returns the log level for programs that don't use klog.
func level(debug bool) string {
	if debug {
		return "debug"
	}
	return "info"
}
