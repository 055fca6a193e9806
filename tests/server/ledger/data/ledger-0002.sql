BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79531669085864186287e+09,'officer','population.create','people',NULL,NULL,'8da531ae449975d4aeb79fb1c57c806e','{"adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"salt":"901bbdde365c006334cfff2d66334327894926a62b478fafee7ee8c3965b76cb","simulated":false,"unit":"user"}','d82c690ead762b44d833df47d8121a0c2bc7fa223bae8286577b4d6356c2c313','4a88474368ff40632d3ed16683dbe681c745cc44a8f63da650b147ea227b9db3');
INSERT INTO "audit" VALUES(2,1795316690.86506,'officer','population.raise','people',NULL,NULL,'b3bc148652f820756b910a3865a7e03b','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','4a88474368ff40632d3ed16683dbe681c745cc44a8f63da650b147ea227b9db3','121699aa90452dc7457e490d209fb626c829d2ca8518df191ae1edae6c8f5a65');
INSERT INTO "audit" VALUES(3,1.79531669086926198007e+09,'officer','population.create','others',NULL,NULL,'7898fd2339e8598cea2ffe1cf3d4fd66','{"adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"salt":"7407c775025aead7f5a720acf7b2d8d0b0c58c640c844e7d25157852f38f8563","simulated":false,"unit":"user"}','121699aa90452dc7457e490d209fb626c829d2ca8518df191ae1edae6c8f5a65','7b9f8f496b6f98d22c3b4af1dc8117f6c393b1a937d227cf6c492a3cc0427e4f');
INSERT INTO "audit" VALUES(4,1.79531669094800615314e+09,'officer','population.close','others',NULL,NULL,'747e21a9a9e889ae06bee8d807971a91','{}','7b9f8f496b6f98d22c3b4af1dc8117f6c393b1a937d227cf6c492a3cc0427e4f','cf24126f398a19f69005d3b746095f2e00af5d12c3deede76869d9d714cd4bad');
INSERT INTO "audit" VALUES(5,1.79531669095174241067e+09,'officer','token.create',NULL,NULL,NULL,'e66b387552117a550ebf053bc8dbef80','{"digest":"1f7ecd3ce59c1e77549826e92cb3ce47070c91dc42574d6aab974de7187627f8","expires_at":null,"id":"4bb2e47b378c","name":"page","scopes":["read"]}','cf24126f398a19f69005d3b746095f2e00af5d12c3deede76869d9d714cd4bad','8d5d1dfb57d45c77fc1f840e42fd5b877146c0621ce7945c346c3b440f317fbe');
INSERT INTO "audit" VALUES(6,1.7953166909550733566e+09,'officer','token.create',NULL,NULL,NULL,'5e2e99b3f77f3270b81e0ec6372af52a','{"digest":"7e5f2450886b838c177ba4a011972ba8916e95de98a5b38487e89a11f2770fba","expires_at":null,"id":"b9b2902125a3","name":"office","scopes":["read","admin"]}','8d5d1dfb57d45c77fc1f840e42fd5b877146c0621ce7945c346c3b440f317fbe','2d3803fb10fa2c089591576db72a3fdbb4a1aefc7dc20ef09d2ee55eb49f831d');
INSERT INTO "audit" VALUES(7,1.7953166909562849998e+09,'officer','token.revoke',NULL,NULL,NULL,'c527cd60c01032b64e1f9723c241dafd','{"id":"4bb2e47b378c"}','2d3803fb10fa2c089591576db72a3fdbb4a1aefc7dc20ef09d2ee55eb49f831d','28a17f6830c66d83fd2be872113af0bc303c0de37d0b3a4ff9c4fef597ce75d9');
INSERT INTO "audit" VALUES(8,1.7953166909582593441e+09,'test','run.start','people','6eb9f4a5e3ce',NULL,'0260eb54e40a5646037a35d41cb41891','{"key_commitment":"7ea84749647f61436c30322050252afdaeb84b10e666a705f3eba9fd49c94b55","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","rounds":3,"trust_node_ids":false}','28a17f6830c66d83fd2be872113af0bc303c0de37d0b3a4ff9c4fef597ce75d9','4c60d817b71b7f856c8c596563dc96d87b53a19b6961ab8ae14edcd8665a8af3');
INSERT INTO "audit" VALUES(9,1.79531669096465492253e+09,'run 6eb9f4a5e3ce','users.register','people','6eb9f4a5e3ce',NULL,'f1283e79435f68f823326344d5266752','{"count":40,"first":0,"hashes":"0103cb8a2d9aa13268b3a7496eb3589db186be2e0cd62eeaa288251ef2cf31c6"}','4c60d817b71b7f856c8c596563dc96d87b53a19b6961ab8ae14edcd8665a8af3','540880065fed0e5aa5d5e32b23bba0aa931b13ae77dc9295eb2f61d5cfffca77');
INSERT INTO "audit" VALUES(10,1.79531669096776485446e+09,'run 6eb9f4a5e3ce','round.open','people','6eb9f4a5e3ce',0,'2ef9d25b20d7cf4a5e338f2a8fd6dd76','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','540880065fed0e5aa5d5e32b23bba0aa931b13ae77dc9295eb2f61d5cfffca77','73e9815296d609c0e8a45a59c19ef5ca7ea264a0b9d53e8105f83aefcf6714ba');
INSERT INTO "audit" VALUES(11,1.79531669097180461881e+09,'run 6eb9f4a5e3ce','round.commit','people','6eb9f4a5e3ce',0,'38b6e03efc735c6784b4528d7d83e827','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','73e9815296d609c0e8a45a59c19ef5ca7ea264a0b9d53e8105f83aefcf6714ba','64d5d2c8305c0bc762095906e61251e6d65302e1f8ab178333b315618fdfec06');
INSERT INTO "audit" VALUES(12,1.79531669097488045692e+09,'run 6eb9f4a5e3ce','round.open','people','6eb9f4a5e3ce',1,'3aae265007d93b168ed8e90daa304817','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','64d5d2c8305c0bc762095906e61251e6d65302e1f8ab178333b315618fdfec06','f5eba01e99fd9161a568bb890929efb88a40d656efe3459ec866d40d80cf2f01');
INSERT INTO "audit" VALUES(13,1.79531669097808623319e+09,'run 6eb9f4a5e3ce','round.commit','people','6eb9f4a5e3ce',1,'86db31b7db3c7822bebad493c5a81b6f','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','f5eba01e99fd9161a568bb890929efb88a40d656efe3459ec866d40d80cf2f01','9371675df8343e10ce3f8a3daa242d4575c61aa4346e4dd64b9672844444f315');
INSERT INTO "audit" VALUES(14,1.79531669097995209699e+09,'run 6eb9f4a5e3ce','round.open','people','6eb9f4a5e3ce',2,'a07bdd981d29ec7aa985057ab0ab48b8','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','9371675df8343e10ce3f8a3daa242d4575c61aa4346e4dd64b9672844444f315','5e5baaf8be92038a30f0b605b55de892bd380d90d76a5d34eb2450b6a1706871');
INSERT INTO "audit" VALUES(15,1.79531669098194813722e+09,'run 6eb9f4a5e3ce','round.commit','people','6eb9f4a5e3ce',2,'5038ee3aec6eb5bdd38d54972898d84e','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','5e5baaf8be92038a30f0b605b55de892bd380d90d76a5d34eb2450b6a1706871','f36863ca602c9b65dd220bead90b254ae0ed2c53c92e42133cf9ce78c86cb625');
INSERT INTO "audit" VALUES(16,1.79531669098374676704e+09,'6eb9f4a5e3ce','run.finish','people','6eb9f4a5e3ce',NULL,'7c473a078c80ad39bf701b0bb54b6704','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','f36863ca602c9b65dd220bead90b254ae0ed2c53c92e42133cf9ce78c86cb625','03c388c1d61eb2cc1f7b177cd1734e9b4848891a4f135baa9276de2f967354b9');
INSERT INTO "audit" VALUES(17,1.79531669098627376553e+09,'test','run.start','people','4e2f02f40d22',NULL,'b00225827b8a4bba6137cffe4402a81c','{"key_commitment":"bf43d6c2f04e4d049e665a18c5775b946c2e5cad3565b231f81c99e509c0311e","noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","rounds":3,"trust_node_ids":false}','03c388c1d61eb2cc1f7b177cd1734e9b4848891a4f135baa9276de2f967354b9','4a897acf777ce53acaa96edad92e230204612b49d7424ddb38a198123f87eee8');
INSERT INTO "audit" VALUES(18,1.79531669099014616012e+09,'run 4e2f02f40d22','round.open','people','4e2f02f40d22',0,'a42ca27af689397aa2fc3a46fb369d2c','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','4a897acf777ce53acaa96edad92e230204612b49d7424ddb38a198123f87eee8','967b41444cf62adf080a3815e67457efbf6fe09cf3c798ea46ae01ecfda9048a');
INSERT INTO "audit" VALUES(19,1.79531669099173378945e+09,'run 4e2f02f40d22','round.void','people','4e2f02f40d22',0,'c9d6d8540ba5f928070ad71b8950d6fa','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','967b41444cf62adf080a3815e67457efbf6fe09cf3c798ea46ae01ecfda9048a','b690333fbe052809ad89ebe6d42e67d37109fd7220fa1cf4b88c17cfd1362d6d');
INSERT INTO "audit" VALUES(20,1.79531669099394750599e+09,'run 4e2f02f40d22','round.open','people','4e2f02f40d22',0,'5300e99d30b5d1bd64a5db046daadde3','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','b690333fbe052809ad89ebe6d42e67d37109fd7220fa1cf4b88c17cfd1362d6d','f6d618ff46ede49ecea7a4d277806e32916656e88bbe748f1a553158bceca466');
INSERT INTO "audit" VALUES(21,1.79531669099721384041e+09,'run 4e2f02f40d22','round.commit','people','4e2f02f40d22',0,'60a08c71c59438a373528901e06823d8','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','f6d618ff46ede49ecea7a4d277806e32916656e88bbe748f1a553158bceca466','ea1a3e585c222129417c52839793c897a1dfb6f9fd4aaacc04d292dc9f6b63f7');
INSERT INTO "audit" VALUES(22,1.7953166909995515346e+09,'run 4e2f02f40d22','users.register','people','4e2f02f40d22',NULL,'ae7160a9d788574ae623289b9e163c0e','{"count":10,"first":40,"hashes":"144711900e5ae513bc190d2bfdb47a1eb50427ad86b29b7533820a1b0c15717a"}','ea1a3e585c222129417c52839793c897a1dfb6f9fd4aaacc04d292dc9f6b63f7','d6c50afcc2ccddc0624a898663ca9a8eab53bd4d6d5ce671911ea4564484ee92');
INSERT INTO "audit" VALUES(23,1.79531669100145387651e+09,'run 4e2f02f40d22','round.open','people','4e2f02f40d22',1,'19325c72352e9a6b750270f524668565','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','d6c50afcc2ccddc0624a898663ca9a8eab53bd4d6d5ce671911ea4564484ee92','b29dc8e5700709efbfc38ed8a6f28487d7a1f32973e83f489aba5b82f79e5c2a');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'170306fab7d1806030dbd1988844667e',23,'b29dc8e5700709efbfc38ed8a6f28487d7a1f32973e83f489aba5b82f79e5c2a');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79531669098374676704e+09,30.0);
INSERT INTO "leases" VALUES(2,'test',1,6,1.79531669100145387651e+09,30.0);
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003');
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004');
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005');
INSERT INTO "participations" VALUES(5,2,0,1,X'0178DA63050000060006');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'C1FEBC9887A1CA6DFFD95D39A37F97C1',50,'{"mu_squared":0.08,"sampled":[]}',1.79531669085864186287e+09,'officer',0.0);
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'07B67369D39B6A9C00054F67AE6015EF',0,'{"mu_squared":0.0,"sampled":[]}',1.79531669086926198007e+09,'officer',0.0);
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79531669096776485446e+09,1.79531669097180461881e+09,NULL);
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79531669097488045692e+09,1.79531669097808623319e+09,NULL);
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79531669097995209699e+09,1.79531669098194813722e+09,NULL);
INSERT INTO "rounds" VALUES(4,2,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79531669099014616012e+09,1.79531669099173378945e+09,NULL);
INSERT INTO "rounds" VALUES(5,2,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79531669099394750599e+09,1.79531669099721384041e+09,NULL);
INSERT INTO "rounds" VALUES(6,2,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79531669100145387651e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'6eb9f4a5e3ce',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','7ea84749647f61436c30322050252afdaeb84b10e666a705f3eba9fd49c94b55',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.7953166909582593441e+09,'test',1.79531669098374676704e+09,NULL,0,NULL);
INSERT INTO "runs" VALUES(2,'4e2f02f40d22',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','bf43d6c2f04e4d049e665a18c5775b946c2e5cad3565b231f81c99e509c0311e',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79531669098627376553e+09,'test',NULL,NULL,0,NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('4bb2e47b378c','page','1f7ecd3ce59c1e77549826e92cb3ce47070c91dc42574d6aab974de7187627f8','read',1.79531669095174241067e+09,'officer',NULL,1.7953166909562849998e+09);
INSERT INTO "tokens" VALUES('b9b2902125a3','office','7e5f2450886b838c177ba4a011972ba8916e95de98a5b38487e89a11f2770fba','read admin',1.7953166909550733566e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'3A47F65EF814D2535812B2678CF3114D03B444C666B7BB0C47A256566CE767C493B478D424547E103DB3A0A0D2A33CBD6AF1DE66332A4A75767F6113624B0581BB54CE2B0D1319890D1EE68175DE0A8A30DE585AE559F29342AFEB934662F622990473E6F263A1B70850CB4EBEACBA95A417E96BC71AF931578FF8B494AF0F5DD7E795987940F97E810670C26F00DE08112C084C6A22C281FB6FC4621D674616CF997BCB32799EE279120DD8DE41F417064B924EE67D7DBA92E575D1B3C1319096A913117F0FA0179903EC8F22E487DCEE9D872F4F8343F031DAE08FFE99DB11B0D2542EB708F6A75970390F80EAFBBFB8706051E2B40A942609D1C7ABCA38A653B3A47617C0FCF7CCBDCDE4D7A5E5078881CE01145F3EEC4DBF6406173BBFA63E84E7BD807384A90471B50E3C41652AA7FC300C3ED4259CF898F7CE08B84044');
INSERT INTO "users" VALUES(1,40,10,X'73E9B3B502D3E675AB055CC3D93884DB134C8E2C1E51C44A30AE50130AFF7FBB087DCAD4E52F2A5D8AD2A4F602666341F960C6FE046CB19218AB05D0FA5C1211232C693DBFF85F3DF00545650253A2F7');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
COMMIT;
